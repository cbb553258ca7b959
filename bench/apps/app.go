package apps

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	mmkernel "github.com/holdfast-hpc/holdfast/apps/matmul/kernel"
	nbkernel "github.com/holdfast-hpc/holdfast/apps/nbody/kernel"
	swkernel "github.com/holdfast-hpc/holdfast/apps/smithwaterman/kernel"
	tpkernel "github.com/holdfast-hpc/holdfast/apps/transpose/kernel"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// An app is an application, and the flags that give it work.
type app struct {
	name string
	// args returns the flags for so much work: 1 takes some tenths of a second on a
	// CPU of two cores, or on a big GPU if big is set. It may write input to dir.
	args func(work float64, big bool, dir string) ([]string, error)
	out  string // name of the result file, with the suffix that the program wants

	half int // about half of the steps for work 1
	// apart compares the results of two kinds of devices for work 1: how far they are apart and how
	// far they may be. nil: they are not compared.
	apart func(a, b string, big bool) (apart, bound float64, err error)

	sources gpustate.Sources
	options string
	kernels []string
}

// apps are all applications.
var apps = []app{
	{
		name: "matmul", out: "c.npy", half: 16, apart: productsApart,
		args: func(work float64, big bool, _ string) ([]string, error) {
			n, k, panel := matmulSize(big)
			return []string{"-size", fmt.Sprintf("%dx%dx%d", n, k, n), "-panel", fmt.Sprint(panel),
				"-repeat", count(matmulRepeats, work)}, nil
		},
		sources: mmkernel.Sources,
		options: mmkernel.Options(true), kernels: []string{mmkernel.Multiply},
	},
	{
		name: "nbody", out: "end.csv", half: 10, apart: bodiesApart,
		args: func(work float64, big bool, _ string) ([]string, error) {
			return []string{"-plummer", fmt.Sprint(nbodySize(big)), "-steps", count(nbodySteps, work), "-energy=false"},
				nil
		},
		sources: nbkernel.Sources, options: nbkernel.Options,
		kernels: []string{nbkernel.Accelerate, nbkernel.KickDrift, nbkernel.Kick},
	},
	{
		name: "smithwaterman", out: "alignment.txt", half: 60,
		args: func(work float64, big bool, dir string) ([]string, error) {
			letters := 8000.0
			if big {
				letters = 200000
			}
			return sequences(dir, int(letters*math.Sqrt(work)))
		},
		sources: swkernel.Sources,
		options: swkernel.Options, kernels: []string{swkernel.Diagonal},
	},
	{
		name: "transpose", out: "matrix.txt", half: 5,
		args: func(work float64, big bool, _ string) ([]string, error) {
			n := 2048
			if big {
				n = 8192
			}
			return []string{"-size", fmt.Sprintf("%dx%d", n, n), "-rounds", count(10, work)}, nil
		},
		sources: tpkernel.Sources,
		options: tpkernel.Options, kernels: []string{tpkernel.Transpose, tpkernel.Place},
	},
}

// Steps for work 1.
const (
	matmulRepeats = 4
	nbodySteps    = 20
)

// matmulSize returns the size of C, the shared dimension and the width of a panel.
func matmulSize(big bool) (n, k, panel int) {
	if big {
		return 8192, 8192, 256
	}
	return 1024, 1024, 128
}

func nbodySize(big bool) int {
	if big {
		return 131072
	}
	return 4096
}

// stepCount returns the number of steps for work times that of base.
func stepCount(base int, work float64) int {
	return max(2, int(math.Round(float64(base)*work)))
}

func count(base int, work float64) string { return fmt.Sprint(stepCount(base, work)) }

// maxKept bounds the length of sequences whose alignment is traced back: the memory for it grows
// with the square, to some 3 GB here.
const maxKept = 400_000

// sequences writes two random sequences of that number of letters with a piece in
// common, and returns the flags that align them.
func sequences(dir string, letters int) ([]string, error) {
	const common = 2000
	letters = max(letters, 2*common)
	rng := rand.New(rand.NewPCG(1, 7))
	random := func(n int) []byte {
		s := make([]byte, n)
		for i := range s {
			s[i] = "ACGT"[rng.IntN(4)]
		}
		return s
	}
	piece := random(common)
	var args []string
	for i, name := range []string{"a", "b"} {
		s := random(letters)
		copy(s[letters/(2+i):], piece)
		file := filepath.Join(dir, fmt.Sprintf("%s-%d.fa", name, letters))
		if err := writeFASTA(file, name, s); err != nil {
			return nil, err
		}
		args = append(args, "-"+name, file)
	}
	if letters > maxKept {
		args = append(args, "-score")
	}
	return args, nil
}

func writeFASTA(file, name string, letters []byte) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	fmt.Fprintf(w, ">%s, %d random letters\n", name, len(letters))
	for len(letters) > 0 {
		n := min(70, len(letters))
		fmt.Fprintf(w, "%s\n", letters[:n])
		letters = letters[n:]
	}
	if err := w.Flush(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
