package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	starts     = flag.Int("length-starts", 5, "how many starts TestLengths has")
	lengthSeed = flag.Uint64("length-seed", 1, "seed of the programs and starts")
)

// speaker is a program of testdata/lengths: arrays of changing lengths in one language.
type speaker struct {
	name    string
	command []string
	last    []string // last words of its line
}

func speakers(t *testing.T) []speaker {
	c := compile(t, "gcc", "testdata/lengths/lengths.c")
	return []speaker{
		{"C follows", []string{c}, []string{"follow"}},
		{"C asks", []string{c}, []string{"ask"}},
		{"C++", []string{cxx(t, "g++", "testdata/lengths/lengths.cpp")}, []string{"-"}},
		{"Fortran", []string{fortran(t, "gfortran", "testdata/lengths/lengths.f90")}, []string{"-"}},
		{"Python", []string{python(t), "testdata/lengths/lengths.py"}, []string{"-"}},
	}
}

// TestLengths starts programs in all languages one after the other on the same checkpoints. Each has arrays whose
// lengths change from step to step, and does not know the lengths that it begins with; it compares what it restores
// with what the step should have, goes on, takes a checkpoint somewhere, and some leave without hf_finalize. Some
// starts go back to the checkpoint before the newest.
func TestLengths(t *testing.T) {
	rng := rand.New(rand.NewPCG(*lengthSeed, 0))
	t.Logf("seed %d", *lengthSeed)
	all := speakers(t)
	env := pythonEnviron(environ(t, filepath.Join(t.TempDir(), "ckpt")))
	env = append(env, "HOLDFAST_JOB=lengths")
	dir := ""
	for _, e := range env {
		if at, ok := strings.CutPrefix(e, "HOLDFAST_GLOBAL="); ok {
			dir = at
		}
	}
	taken := map[int]int{} // the step of each epoch
	for i := range *starts {
		s := all[i%len(all)]
		if i >= len(all) {
			s = all[rng.IntN(len(all))]
		}
		begins, own := 0, env
		if have := epochs(t, dir); len(have) > 0 {
			e := have[0]
			if len(have) > 1 && rng.IntN(3) == 0 {
				e = have[1]
				own = append(own[:len(own):len(own)], fmt.Sprint("HOLDFAST_EPOCH=", e))
			}
			begins = taken[e]
		}
		at := begins + 1 + rng.IntN(8)
		until := at + rng.IntN(4)
		args := append(s.command[1:len(s.command):len(s.command)], fmt.Sprint(*lengthSeed), fmt.Sprint(until),
			fmt.Sprint(at))
		args = append(args, s.last...)
		if rng.IntN(2) == 0 {
			args = append(args, "die")
		}
		j := launchRanks(t, 2, s.command[0], own, args...)
		j.wait()
		said := j.out.String()
		if strings.Contains(said, "wrong at step") ||
			strings.Count(said, fmt.Sprintf("lengths: begins at step %d\n", begins)) != 2 ||
			!strings.Contains(said, "lengths: ends at step") || strings.Contains(said, "changed its length") {
			t.Fatalf("start %d, %s from step %d to %d:\n%s", i, s.name, begins, until, said)
		}
		if have := epochs(t, dir); len(have) > 0 {
			taken[have[0]] = at
		}
	}
}

// TestLengthNotKnown has a program whose arrays grow and which does not say how a restart learns their lengths. It is
// warned once of each at the first checkpoint; a restart is refused with the remedy, which is not to give the
// checkpoint up, and gets it all back once the program follows the lengths.
func TestLengthNotKnown(t *testing.T) {
	c := compile(t, "gcc", "testdata/lengths/lengths.c")
	env := environ(t, filepath.Join(t.TempDir(), "ckpt"))
	j := launchRanks(t, 2, c, env, "1", "7", "4", "plain")
	j.mustEnd()
	said := j.out.String()
	for _, name := range []string{"a", "b", "s"} {
		const warning = "a protected array has changed its length since hf_restore"
		for rank := range 2 {
			n := 0
			for line := range strings.Lines(said) {
				if strings.Contains(line, warning) && strings.Contains(line, fmt.Sprint("rank=", rank)) &&
					strings.HasSuffix(line, "array="+name+"\n") {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%d warnings of %q by rank %d, want 1:\n%s", n, name, rank, said)
			}
		}
	}
	j = launchRanks(t, 2, c, env, "1", "7", "4", "plain")
	j.wait()
	said = j.out.String()
	for _, words := range []string{"lengths: the checkpoint is intact, but the program protects another " +
		"number of elements than it has; protect as many, or let it take the length",
		`restore "a": the checkpoint has `, `restore "b": the checkpoint has `, "elements, the program 0", "rank 1:"} {
		if !strings.Contains(said, words) {
			t.Errorf("the restart does not say %q:\n%s", words, said)
		}
	}
	if strings.Contains(said, "HOLDFAST_FRESH") || strings.Contains(said, "verify") {
		t.Errorf("the restart says to give the checkpoint up:\n%s", said)
	}
	j = launchRanks(t, 2, c, env, "1", "7", "4", "follow")
	j.mustEnd()
	if said := j.out.String(); !strings.Contains(said, "lengths: begins at step 4\n") {
		t.Errorf("the checkpoint is lost:\n%s", said)
	}
}

// TestRanksDisagree has rank 1 declare a replicated value in another way than the others: the checkpoint is refused on
// all ranks, with its name and the ranks.
func TestRanksDisagree(t *testing.T) {
	c := compile(t, "gcc", "testdata/lengths/lengths.c")
	for how, words := range map[string]string{
		"name":   `array "same" at rank 1: is not declared there`,
		"type":   `array "same": type slice int64 at rank 0, but slice uint64 at rank 1`,
		"length": `array "same": length [32] at rank 0, but [24] at rank 1`} {
		dir := filepath.Join(t.TempDir(), "ckpt")
		j := launchRanks(t, 2, c, environ(t, dir), "1", "3", "2", how)
		for range j.ranks {
			j.await("lengths: epoch 1: ")
		}
		j.kill()
		j.wait()
		if said := j.out.String(); strings.Count(said, "lengths: epoch 1: ") != 2 || !strings.Contains(said, words) {
			t.Errorf("%s: no %q by each rank:\n%s", how, words, said)
		}
		if have := epochs(t, dir); len(have) > 0 {
			t.Errorf("%s: there are epochs %v", how, have)
		}
	}
}

// TestRows restores an array of rows in Python that begins with none, and refuses one whose rows are of another
// length, though the elements would make up whole ones. A checkpoint warns, once, of the only array that the program
// has let go.
func TestRows(t *testing.T) {
	env := pythonEnviron(environ(t, t.TempDir()))
	line := []string{python(t), "testdata/lengths/rows.py"}
	j := launchOne(t, env, append(line, "4"))
	j.mustEnd()
	said := j.out.String()
	if strings.Count(said, "is no longer used by the program") != 1 || !strings.Contains(said, `"lost" is no longer`) {
		t.Errorf("the warnings of arrays that are not used are wrong:\n%s", said)
	}
	j = launchOne(t, env, append(line, "2"))
	j.wait()
	const refused = "the checkpoint has slice [4]float64, the program slice [2]float64"
	if said = j.out.String(); !strings.Contains(said, refused) {
		t.Errorf("rows of another length are not refused:\n%s", said)
	}
	j = launchOne(t, env, append(line, "4"))
	j.mustEnd()
	if said = j.out.String(); !strings.Contains(said, "rows: the same") {
		t.Errorf("the rows are not restored:\n%s", said)
	}
}

// epochs returns those that a job can restore, newest first.
func epochs(t *testing.T, dir string) (list []int) {
	t.Helper()
	out, err := exec.Command(built.holdfast, "ls", "--json", dir).Output()
	if strings.Contains(string(out), "has no holdfast.job") {
		return nil // nothing has run
	}
	if err != nil {
		t.Fatalf("holdfast ls: %v\n%s", err, out)
	}
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var row struct {
			Epoch     int
			Committed bool
		}
		if err := in.Decode(&row); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if row.Committed {
			list = append(list, row.Epoch)
		}
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list
}

// TestEnded asks for a checkpoint, and for a final one, behind the last point. None is taken, which is said: a start
// from there would do one step too many. max_failed does not count it.
func TestEnded(t *testing.T) {
	c := compile(t, "gcc", "testdata/lengths/ended.c")
	for _, what := range []string{"checkpoint", "stop"} {
		dir := filepath.Join(t.TempDir(), "ckpt")
		env := append(environ(t, dir), "HOLDFAST_MAX_FAILED=1")
		for range 2 {
			j := launchRanks(t, 2, c, env, what)
			j.mustEnd()
			said := j.out.String()
			if strings.Count(said, "ended: 10 steps, 0\n") != 2 ||
				!strings.Contains(said, "the program has ended, and stands behind its last point") ||
				strings.Contains(said, "failed") {
				t.Errorf("%s: the program did not end at step 10, or nobody said why there is no checkpoint:\n%s", what,
					said)
			}
		}
	}
}

// TestReplicatedState restores an object of Python that all ranks have alike on another number of ranks.
func TestReplicatedState(t *testing.T) {
	env := pythonEnviron(environ(t, t.TempDir()))
	launchRanks(t, 2, python(t), env, "testdata/lengths/words.py").wait()
	j := launchRanks(t, 3, python(t), env, "testdata/lengths/words.py")
	j.mustEnd()
	if said := j.out.String(); strings.Count(said, "words: begins with xxxx\n") != 3 {
		t.Errorf("not all ranks have the object of step 4:\n%s", said)
	}
}
