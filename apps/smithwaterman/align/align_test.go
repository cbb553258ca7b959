package align

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/smithwaterman/fasta"
)

func matrix(t *testing.T, name string, open, extend int) *Scoring {
	t.Helper()
	s, err := Matrix(name, open, extend)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// read returns the first sequence of a file in ../input.
func read(t *testing.T, s *Scoring, name string) Named {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "input", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := fasta.Read(f)
	if err != nil || len(all) == 0 {
		t.Fatalf("%s: %d sequences, %v", name, len(all), err)
	}
	codes, err := s.Encode(all[0].Letters)
	if err != nil {
		t.Fatal(err)
	}
	return Named{Name: all[0].Name, Letters: all[0].Letters, Codes: codes}
}

// slow computes the best score by the definition: gaps of every length are tried
// at every cell (Waterman, Smith and Beyer, Adv. Math. 20 (1976) 367).
func slow(s *Scoring, a, b []byte) int32 {
	h := make([][]int32, len(a)+1)
	for i := range h {
		h[i] = make([]int32, len(b)+1)
	}
	var best int32
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			v := max(0, h[i-1][j-1]+s.Pair[int(a[i-1])*Letters+int(b[j-1])])
			for k := 1; k <= i; k++ {
				v = max(v, h[i-k][j]-s.Open-int32(k-1)*s.Extend)
			}
			for k := 1; k <= j; k++ {
				v = max(v, h[i][j-k]-s.Open-int32(k-1)*s.Extend)
			}
			h[i][j] = v
			best = max(best, v)
		}
	}
	return best
}

// random returns two sequences that share parts, so that there is something to
// align.
func random(rng *rand.Rand, n int) (a, b []byte) {
	for len(a) < n {
		c := byte(rng.IntN(4))
		switch rng.IntN(8) {
		case 0:
			a = append(a, c)
		case 1:
			b = append(b, c)
		case 2:
			a, b = append(a, c), append(b, byte(rng.IntN(4)))
		default:
			a, b = append(a, c), append(b, c)
		}
	}
	return a, b
}

func TestLocalAgainstDefinition(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		open := rng.IntN(12)
		s := matrix(t, "dna", open, rng.IntN(open+1))
		a, b := random(rng, 1+rng.IntN(60))
		got, want := s.Local(a, b), slow(s, a, b)
		if got.Score != want {
			t.Fatalf("seed %d, gaps %d %d: got score %d, want %d", seed, s.Open, s.Extend, got.Score, want)
		}
		if again := got.Rescore(s, a, b); again != want {
			t.Fatalf("seed %d, gaps %d %d: the alignment is worth %d, want %d", seed, s.Open, s.Extend, again, want)
		}
	}
}

// TestWater compares with EMBOSS 6.6.0: water with -datafile EBLOSUM62 or
// EDNAFULL and the gap costs of the case, the lambda pair being its bases 1 to
// 6000 and 30001 to 37000.
func TestWater(t *testing.T) {
	t.Run("human globins", func(t *testing.T) {
		s := matrix(t, "blosum62", 10, 1)
		a, b := read(t, s, "hba.fa"), read(t, s, "hbb.fa")
		al := s.Local(a.Codes, b.Codes)
		if al.Score != 291 || al.A != 2 || al.B != 3 {
			t.Errorf("got score %d from %d and %d on, want 291 from 2 and 3", al.Score, al.A, al.B)
		}
		if got, want := al.Count(s, a.Codes, b.Codes), (Counts{145, 63, 88, 8}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	for _, c := range []struct {
		open, extend int
		score        int32
	}{{10, 1, 3519}, {6, 3, 4531}} {
		t.Run(fmt.Sprintf("lambda %d %d", c.open, c.extend), func(t *testing.T) {
			if testing.Short() && c.open == 6 {
				t.Skip("fills 42 million cells")
			}
			s := matrix(t, "dna", c.open, c.extend)
			all := read(t, s, "lambda.fa").Codes
			a, b := all[:6000], all[30000:37000]
			al := s.Local(a, b)
			if al.Score != c.score || al.Rescore(s, a, b) != c.score {
				t.Errorf("got score %d, rescored %d, want %d", al.Score, al.Rescore(s, a, b), c.score)
			}
		})
	}
}

// TestBlocks traces an alignment back through a grid of blocks, each computed
// from its borders alone, and gets the alignment of the whole.
func TestBlocks(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s := matrix(t, "dna", 6, 1)
		a, b := random(rng, 30+rng.IntN(100))
		if len(a) == 0 || len(b) == 0 {
			continue
		}
		want := s.Local(a, b)
		got := blockwise(s, a, b, 1+rng.IntN(40), 1+rng.IntN(40))
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: got %+v, want %+v", seed, got, want)
		}
	}
}

// blockwise aligns with blocks of the given size.
func blockwise(s *Scoring, a, b []byte, rows, cols int) *Alignment {
	borders := map[[2]int]Block{}
	var best Best
	whole := Whole(a, b)
	for i := 0; i < len(a); i += rows {
		ih := min(i+rows, len(a))
		left := Whole(a[i:ih], nil)
		var corner int32
		for j := 0; j < len(b); j += cols {
			jh := min(j+cols, len(b))
			k := Block{A: a[i:ih], B: b[j:jh], Corner: corner, LeftH: left.LeftH, LeftE: left.LeftE,
				TopH: append([]int32(nil), whole.TopH[j:jh]...), TopF: append([]int32(nil), whole.TopF[j:jh]...)}
			borders[[2]int{i / rows, j / cols}] = k
			corner = whole.TopH[jh-1]
			left = lastColumn(s, k)
			run := k
			run.TopH, run.TopF = whole.TopH[j:jh], whole.TopF[j:jh]
			m := s.Fill(&run).Best
			if m.Row, m.Col = m.Row+i, m.Col+j; m.Score > 0 && m.Better(best) {
				best = m
			}
		}
	}
	w := &Walk{Row: best.Row, Col: best.Col}
	for w.Row >= 0 && w.Col >= 0 && w.State != Done {
		i, j := w.Row/rows, w.Col/cols
		k := borders[[2]int{i, j}]
		k.TopH, k.TopF = append([]int32(nil), k.TopH...), append([]int32(nil), k.TopF...)
		w.Row, w.Col = w.Row-i*rows, w.Col-j*cols
		s.Fill(&k).Back(w)
		w.Row, w.Col = w.Row+i*rows, w.Col+j*cols
	}
	return FromWalk(best.Score, w)
}

// lastColumn returns H and E of a block's last column as the left border of the
// next, by filling each row in turn.
func lastColumn(s *Scoring, k Block) *Block {
	next := Whole(k.A, nil)
	topH, topF := append([]int32(nil), k.TopH...), append([]int32(nil), k.TopF...)
	above := k.Corner
	for i := range k.A {
		h, e, diag := k.LeftH[i], k.LeftE[i], above
		above = k.LeftH[i]
		for j, b := range k.B {
			e = max(h-s.Open, e-s.Extend)
			f := max(topH[j]-s.Open, topF[j]-s.Extend)
			h = max(0, diag+s.Pair[int(k.A[i])*Letters+int(b)], e, f)
			diag, topH[j], topF[j] = topH[j], h, f
		}
		next.LeftH[i], next.LeftE[i] = h, e
	}
	return next
}

// TestText pins the first lines of an alignment for people.
func TestText(t *testing.T) {
	s := matrix(t, "blosum62", 10, 1)
	a, b := read(t, s, "hba.fa"), read(t, s, "hbb.fa")
	var out strings.Builder
	if err := s.Local(a.Codes, b.Codes).Write(&out, s, a, b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Identity: 63/145 (43.4%)\n", "# Score: 291\n",
		"HBA_HUMAN         3 LSPADKTNVKAAWGKVGAHAGEYGAEALERMFLSFPTTKTYFPHF-DLS-----HGSAQV 56\n",
		"                    |:|.:|:.|.|.||||  :..|.|.|||.|:.:.:|.|:.:|..| |||     .|:.:|\n",
		"HBB_HUMAN         4 LTPEEKSAVTALWGKV--NVDEVGGEALGRLLVVYPWTQRFFESFGDLSTPDAVMGNPKV 61\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant a line %q", out.String(), want)
		}
	}
}

// TestMatrices: the matrices have a row for every column, and are symmetric.
func TestMatrices(t *testing.T) {
	for _, name := range []string{"dna", "BLOSUM62"} {
		s := matrix(t, name, 10, 1)
		for a := range s.upper {
			if s.Pair[a*Letters+a] == 0 && s.upper[a] != 'N' {
				t.Errorf("%s: no score for two %c", name, s.upper[a])
			}
			for b := range s.upper {
				if s.Pair[a*Letters+b] != s.Pair[b*Letters+a] {
					t.Errorf("%s: %c against %c scores otherwise than the reverse", name, s.upper[a], s.upper[b])
				}
			}
		}
	}
}

func TestMatrixRefuses(t *testing.T) {
	if _, err := Matrix("blosum62", 1, 2); err == nil {
		t.Error("extending dearer than opening: got no error")
	}
	if _, err := Matrix("pam1000", 10, 1); err == nil || !strings.Contains(err.Error(), "blosum62 or dna") {
		t.Errorf("got %v, want the known names", err)
	}
	s := matrix(t, "dna", 10, 1)
	if _, err := s.Encode([]byte("ACGE")); err == nil || !strings.Contains(err.Error(), "place 4") {
		t.Errorf("got %v, want the place of the letter", err)
	}
}

func BenchmarkFill(b *testing.B) {
	s, err := Matrix("dna", 10, 1)
	if err != nil {
		b.Fatal(err)
	}
	x, y := random(rand.New(rand.NewPCG(1, 1)), 1000)
	b.SetBytes(int64(len(x) * len(y)))
	for b.Loop() {
		s.Fill(Whole(x, y))
	}
}

// TestFits: what may not be held is refused before it is computed.
func TestFits(t *testing.T) {
	s := matrix(t, "dna", 10, 1)
	s.Pair[0] = 30000
	if err := s.Fits(17895); err != nil {
		t.Errorf("a score of up to 536850000: %v", err)
	}
	if err := s.Fits(17896); err == nil || !strings.Contains(err.Error(), "align parts") {
		t.Errorf("a score of up to 536880000: got %v, want an error with the remedy", err)
	}
}
