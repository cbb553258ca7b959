package bodies

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	s, err := Plummer(100, 7)
	if err != nil {
		t.Fatal(err)
	}
	s.Pos[0] = math.SmallestNonzeroFloat32
	s.Pos[4] = math.MaxFloat32
	var b bytes.Buffer
	if err := s.Write(&b, "a comment"); err != nil {
		t.Fatal(err)
	}
	got, err := Read(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest() != s.Digest() || got.Units != NBody {
		t.Errorf("got digest %s units %s, want %s %s", got.Digest(), got.Units, s.Digest(), NBody)
	}
	var again bytes.Buffer
	if err := got.Write(&again, "a comment"); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Error("the file written from what was read differs from the file read")
	}
}

func TestReadColumnsAndNames(t *testing.T) {
	s, err := Read(strings.NewReader("# made by hand\n# units: solar\n\nx, y, z, name, vx, vy, vz, " +
		"mass\n1,2,3,Rock,4,5,6,7\n# between\n0,0,0,Sun,0,0,0,1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Len() != 2 || s.Names[0] != "Rock" || s.Names[1] != "Sun" || s.Mass(0) != 7 || s.Vel[2] != 6 {
		t.Errorf("got names %q pos %v vel %v", s.Names, s.Pos, s.Vel)
	}
}

// TestReadSI checks that the Earth's distance, speed and mass in SI units become
// solar ones.
func TestReadSI(t *testing.T) {
	s, err := Read(strings.NewReader("# units: si\nmass,x,y,z,vx,vy,vz\n1.98841e30,149597870700,0,0,0,1731456.84,0\n"))
	if err != nil {
		t.Fatal(err)
	}
	// 1.98841e30 kg is the mass of the Sun to the five digits that G has.
	if s.Units != Solar || math.Abs(float64(s.Mass(0))-1) > 1e-5 {
		t.Errorf("got mass %v %s, want 1 solar", s.Mass(0), s.Units)
	}
	if s.Pos[0] != 1 || math.Abs(float64(s.Vel[1])-1) > 1e-6 {
		t.Errorf("got x %v vy %v, want 1 au and 1 au/day", s.Pos[0], s.Vel[1])
	}
}

func TestReadRefuses(t *testing.T) {
	const head = "# units: nbody\nmass,x,y,z,vx,vy,vz\n"
	cases := []struct {
		name, file string
		line       int
		want       string
	}{
		{"empty", "", 1, "units"},
		{"no units", "mass,x,y,z,vx,vy,vz\n1,0,0,0,0,0,0\n", 1, "# units: solar"},
		{"unknown units", "# units: furlong\nmass,x,y,z,vx,vy,vz\n", 1, `unknown units "furlong"`},
		{"no header", "# units: si\n", 2, "columns"},
		{"column missing", "# units: si\nmass,x,y,vx,vy,vz\n", 2, `no column "z"`},
		{"column twice", "# units: si\nmass,x,y,z,x,vx,vy,vz\n", 2, `column "x" is there twice`},
		{"no bodies", head, 2, "no bodies"},
		{"not a number", head + "1,0,0,0,0,0,0\n1,0,zero,0,0,0,0\n", 4, `column "y": "zero"`},
		{"NaN", head + "1,NaN,0,0,0,0,0\n", 3, "finite"},
		{"too large", head + "1,1e39,0,0,0,0,0\n", 3, "single precision"},
		{"negative mass", head + "-1,0,0,0,0,0,0\n", 3, "negative mass"},
		{"short record", head + "1,0,0\n", 3, "fields"},
		{"cut in a quote", head + "1,0,0,0,0,0,\"0", 3, "quote"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read(strings.NewReader(c.file))
			var format *FormatError
			if !errors.As(err, &format) {
				t.Fatalf("got %v, want a FormatError", err)
			}
			if format.Line != c.line || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q at line %d, want %q at line %d", err, format.Line, c.want, c.line)
			}
		})
	}
}

// TestNames: names that CSV must quote read back as they were.
func TestNames(t *testing.T) {
	names := []string{"Sun, the", `a "b"`, " lead", "#1", "Earth+Moon", ""}
	s := New(len(names), NBody)
	s.Names = names
	var b strings.Builder
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(strings.NewReader(b.String()))
	if err != nil || !slices.Equal(got.Names, names) {
		t.Errorf("got %q, %v, want %q, from\n%s", got.Names, err, names, b.String())
	}
}

func TestNotFinite(t *testing.T) {
	s := New(3, NBody)
	if got := s.NotFinite(); got != -1 {
		t.Errorf("all zero: got %d", got)
	}
	s.Vel[4*2+1] = float32(math.Inf(-1))
	if got := s.NotFinite(); got != 2 {
		t.Errorf("infinite: got %d, want 2", got)
	}
	s.Pos[4] = float32(math.NaN())
	if got := s.NotFinite(); got != 1 {
		t.Errorf("NaN: got %d, want 1", got)
	}
}

// failAfter is a writer whose disk is full after n bytes.
type failAfter struct{ n int }

func (f *failAfter) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestWriteReportsErrors(t *testing.T) {
	s, _ := Plummer(1000, 1)
	if err := s.Write(&failAfter{5000}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v, want the writer's error", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("# units: nbody\nmass,x,y,z,vx,vy,vz\n1,0,0,0,0,0,0\n")
	f.Add("# units: si\nname,mass,x,y,z,vx,vy,vz\n\"a,b\",1,0,0,0,0,0,0\n")
	f.Fuzz(func(t *testing.T, file string) {
		s, err := Read(strings.NewReader(file))
		if err != nil {
			return
		}
		if len(s.Pos) != len(s.Vel) || len(s.Pos)%4 != 0 || s.Len() == 0 {
			t.Fatalf("got %d and %d numbers", len(s.Pos), len(s.Vel))
		}
		for _, x := range s.Pos {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				t.Fatalf("got %v in a position", x)
			}
		}
	})
}
