package remote

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// applications are all that are moved.
var applications = []string{"matmul", "nbody", "smithwaterman", "transpose"}

// arguments returns the flags that give an application so much work: 1 takes some tenths of a second on a CPU of two
// cores. They may write input to dir.
func arguments(name string, load float64, dir string) ([]string, error) {
	steps := func(n float64) string { return fmt.Sprint(max(2, int(math.Round(n*load)))) }
	switch name {
	case "matmul":
		return []string{"-size", "1024x1024x1024", "-panel", "128", "-repeat", steps(4)}, nil
	case "nbody":
		return []string{"-plummer", "4096", "-steps", steps(20), "-energy=false"}, nil
	case "transpose":
		return []string{"-size", "2048x2048", "-rounds", steps(10)}, nil
	}
	return sequences(dir, int(8000*math.Sqrt(load)))
}

// sequences writes two random sequences with a piece in common, and returns the flags that align them.
func sequences(dir string, letters int) (args []string, err error) {
	rng := rand.New(rand.NewPCG(1, 7))
	random := func(n int) string {
		var s strings.Builder
		for i := range n {
			if i%70 == 0 {
				s.WriteByte('\n')
			}
			s.WriteByte("ACGT"[rng.IntN(4)])
		}
		return s.String()
	}
	piece := random(2000)
	for _, name := range []string{"a", "b"} {
		file := filepath.Join(dir, fmt.Sprintf("%s-%d.fa", name, letters))
		text := ">" + name + random(letters/2) + piece + random(letters/2) + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "-"+name, file)
	}
	return args, nil
}
