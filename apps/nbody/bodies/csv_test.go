package bodies

import (
	"bytes"
	"errors"
	"math"
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
	if got.Digest() != s.Digest() {
		t.Errorf("got digest %s, want %s", got.Digest(), s.Digest())
	}
	var again bytes.Buffer
	if err := got.Write(&again, "a comment"); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Error("the file written from what was read differs from the file read")
	}
}

func TestReadRefuses(t *testing.T) {
	const head = "# comment\nmass,x,y,z,vx,vy,vz\n"
	cases := []struct{ name, file, want string }{
		{"empty", "", "columns mass,x,y,z,vx,vy,vz"},
		{"column missing", "mass,x,y,vx,vy,vz\n1,2,3,4,5,6\n", "columns mass,x,y,z,vx,vy,vz"},
		{"no bodies", head, "none in the file"},
		{"not a number", head + "1,0,0,0,0,0,0\n1,0,zero,0,0,0,0\n", `line 4: column "y": "zero"`},
		{"NaN", head + "1,NaN,0,0,0,0,0\n", "line 3: column \"x\": \"NaN\" is not a finite"},
		{"too large", head + "1,1e39,0,0,0,0,0\n", "single precision"},
		{"negative mass", head + "-1,0,0,0,0,0,0\n", "line 3: negative mass"},
		{"short record", head + "1,0,0\n", "line 3: wrong number of fields"},
		{"cut in a quote", head + "1,0,0,0,0,0,\"0", "quote"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Read(strings.NewReader(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestNotFinite(t *testing.T) {
	s := New(3)
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
	f.Add("# comment\nmass,x,y,z,vx,vy,vz\n1,0,0,0,0,0,0\n")
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
