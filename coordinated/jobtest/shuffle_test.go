package jobtest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

var (
	shuffles    = flag.Int("shuffles", 40, "how often TestShuffledRuns mixes the directories of runs")
	shuffleSeed = flag.Uint64("shuffle-seed", 1, "of TestShuffledRuns")
)

const (
	shuffledRuns  = 4
	shuffledRanks = 2
)

// shuffled are the directories of several runs of one program, each below a directory of its own: those of the ranks'
// nodes and the global one.
type shuffled struct {
	t      *testing.T
	base   string
	rand   *rand.Rand
	owners map[int]string // the runs as they were made, by the tags in their states
	log    []string
}

var shuffledParts = []string{"local0", "local1", "global"}

func (s *shuffled) dir(run int, part string) string {
	return filepath.Join(s.base, fmt.Sprint("run", run), part)
}

// start runs the program once with any directories: it restores, takes epochs, and returns the run and step
// of each rank's state.
func (s *shuffled) start(locals []string, global string, tag, epochs int) (tags, steps []int, err error) {
	tags, steps = make([]int, shuffledRanks), make([]int, shuffledRanks)
	opt := jobtest.Options(s.t)
	opt.Keep, opt.Global, opt.OnLost = 3, global, func(*coordinated.LostError) {}
	opt.Logger = slog.New(slog.DiscardHandler)
	var mu sync.Mutex
	err = mpitest.NewWorld(shuffledRanks, mpitest.Options{Seed: 1}).Run(func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		opt := opt
		opt.Local = locals[world.Rank()]
		ck, err := coordinated.Open(ctx, world, opt)
		if err != nil {
			return err
		}
		state := []int{0, 0}
		if err = ck.Protect("state", &state); err == nil {
			_, err = ck.Restore(ctx)
		}
		if err != nil {
			ck.Abort(err)
			return err
		}
		mu.Lock()
		tags[world.Rank()], steps[world.Rank()] = state[0], state[1]
		mu.Unlock()
		state[0] = tag
		for range epochs {
			state[1]++
			if world.Rank() == 0 {
				err = ck.Request(ctx)
			}
			for n := len(ck.Stats().Epochs); err == nil && len(ck.Stats().Epochs) == n; {
				err = ck.Point(ctx)
			}
			if err == nil {
				err = ck.Wait(ctx, storage.LevelGlobal)
			}
			if err != nil {
				ck.Abort(err)
				return err
			}
		}
		return ck.Close()
	})
	return tags, steps, err
}

// held is what one directory has, by its own word.
type held struct {
	run    string            // whose it is; "" if it has nothing of its own
	epochs map[uint64]string // whose each epoch is
}

func (s *shuffled) look(dir string) held {
	h := held{epochs: map[uint64]string{}}
	v, err := checkpoints.Inspect(s.t.Context(), dir)
	if err != nil {
		return h
	}
	list, err := v.Epochs(s.t.Context())
	if err != nil {
		return h
	}
	for _, e := range list {
		if e.Committed || e.OtherRun {
			h.epochs[uint64(e.Epoch)] = e.Run.Short()
		}
		if e.Committed {
			h.run = v.Dirs()[0].Run.Short()
		}
	}
	return h
}

// shuffle does something that people do to directories.
func (s *shuffled) shuffle(runs int) {
	a, b := s.rand.IntN(runs), s.rand.IntN(runs)
	part := shuffledParts[s.rand.IntN(len(shuffledParts))]
	to, from := s.dir(a, part), s.dir(b, part)
	note := func(what string, of ...any) { s.log = append(s.log, fmt.Sprintf(what, of...)) }
	inside := func(dir, pattern string) string {
		list, _ := filepath.Glob(filepath.Join(dir, pattern))
		if len(list) == 0 {
			return ""
		}
		return list[s.rand.IntN(len(list))]
	}
	over := func(path string) {
		if path == "" {
			return
		}
		rel, _ := filepath.Rel(from, path)
		note("%s of run %d over that of run %d: %s", part, b, a, rel)
		s.must(os.RemoveAll(filepath.Join(to, rel)))
		s.must(copyTree(path, filepath.Join(to, rel)))
	}
	switch s.rand.IntN(7) {
	case 0:
		note("swap %s of %d and %d", part, a, b)
		if a != b {
			s.must(errors.Join(os.Rename(to, to+"."), os.Rename(from, to), os.Rename(to+".", from)))
		}
	case 1:
		note("empty %s of %d", part, a)
		s.must(errors.Join(os.RemoveAll(to), os.Mkdir(to, 0o755)))
	case 2, 3:
		over(inside(from, "epoch-*"))
	case 4:
		over(inside(from, "holdfast.*"))
	case 5:
		over(inside(from, "epochs-*"))
	case 6:
		over(inside(from, "epoch-*/*"))
	}
}

func (s *shuffled) must(err error) {
	if err != nil && !os.IsNotExist(err) {
		s.fatal("%v", err)
	}
}

func (s *shuffled) fatal(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\nafter: %s", fmt.Sprintf(format, args...), strings.Join(s.log, "; "))
}

func copyTree(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

// TestShuffledRuns mixes the directories of two to four runs of one program as people do, and lets a start and the
// tools loose on them: no epoch of another run is restored, copied or offered. A part of the seeds here; all of them by
// -shuffles.
func TestShuffledRuns(t *testing.T) {
	made := &shuffled{t: t, base: t.TempDir()}
	for run := range shuffledRuns {
		for _, part := range shuffledParts {
			made.must(os.MkdirAll(made.dir(run, part), 0o755))
		}
		for range 2 { // the second one continues
			_, _, err := made.start([]string{made.dir(run, "local0"), made.dir(run, "local1")}, made.dir(run, "global"),
				run+1, 1+run%2)
			made.must(err)
		}
	}
	made.owners = map[int]string{}
	for run := range shuffledRuns {
		made.owners[run+1] = made.look(made.dir(run, "global")).run
	}
	if testing.Short() {
		*shuffles = min(*shuffles, 12)
	}
	outcome := map[string]int{}
	for n := range *shuffles {
		seed := *shuffleSeed*1_000_000 + uint64(n)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := &shuffled{t: t, base: t.TempDir(), rand: rand.New(rand.NewPCG(seed, 3)), owners: made.owners}
			s.must(os.CopyFS(s.base, os.DirFS(made.base)))
			runs := 2 + s.rand.IntN(shuffledRuns-1)
			for range 1 + s.rand.IntN(4) {
				s.shuffle(runs)
			}
			if s.rand.IntN(2) == 0 {
				s.restart(runs, outcome)
			} else {
				s.tool(runs, outcome)
			}
		})
	}
	t.Logf("%v", outcome)
}

// pick takes the directory of a part of any run, mostly of the first.
func (s *shuffled) pick(runs int, part string) string {
	if s.rand.IntN(4) > 0 {
		return s.dir(0, part)
	}
	return s.dir(s.rand.IntN(runs), part)
}

// restart starts the program with directories of several runs.
func (s *shuffled) restart(runs int, outcome map[string]int) {
	locals := []string{s.pick(runs, "local0"), s.pick(runs, "local1")}
	global := s.pick(runs, "global")
	dirs := append(slices.Clone(locals), global)
	holders := map[string]bool{}
	for _, d := range dirs {
		if h := s.look(d); h.run != "" {
			holders[h.run] = true
		}
		s.log = append(s.log, fmt.Sprintf("start with %s: %v", d, s.look(d)))
	}
	tags, _, err := s.start(locals, global, -1, 0)
	switch {
	case err != nil:
		outcome["restart refused"]++
		return
	case len(holders) > 1:
		s.fatal("directories of the runs %v were taken together; restored %v", holders, tags)
	case tags[0] != tags[1]:
		s.fatal("the ranks restored states of different runs: %v", tags)
	case tags[0] == 0 && len(holders) > 0:
		s.fatal("the start began from nothing, and directories hold epochs of %v", holders)
	case tags[0] != 0 && !holders[s.owners[tags[0]]]:
		s.fatal("restored run %d (%s), and the directories belong to %v", tags[0], s.owners[tags[0]], holders)
	}
	outcome["restart"]++
}

// tool lets one of the tools loose on some directories, and compares whose epochs they have before and after.
func (s *shuffled) tool(runs int, outcome map[string]int) {
	var dirs []string
	for _, part := range shuffledParts {
		for range 1 + s.rand.IntN(2) {
			if d := s.pick(runs, part); !slices.Contains(dirs, d) {
				dirs = append(dirs, d)
			}
		}
	}
	target := filepath.Join(s.base, "target")
	if s.rand.IntN(2) == 0 {
		target = s.pick(runs, "global")
		dirs = slices.DeleteFunc(dirs, func(d string) bool { return d == target })
	}
	before, holders := map[string]held{}, map[string]bool{}
	for _, d := range append(slices.Clone(dirs), target) {
		before[d] = s.look(d)
		if d != target && before[d].run != "" {
			holders[before[d].run] = true
		}
	}
	ctx, name := s.t.Context(), ""
	var err error
	switch s.rand.IntN(4) {
	case 0:
		name = "repair"
		_, err = checkpoints.Repair(ctx, dirs, checkpoints.RepairRules{})
	case 1:
		name = "copy"
		_, err = checkpoints.Copy(ctx, dirs, target, 0, 0)
	case 2:
		name = "flush"
		if _, serr := os.Stat(target); serr != nil {
			s.must(os.Mkdir(target, 0o755))
		}
		_, err = checkpoints.Flush(ctx, dirs, target, 0)
	case 3:
		name = "prune"
		_, err = checkpoints.Prune(ctx, dirs, checkpoints.PruneRules{Keep: 1 + s.rand.IntN(2)})
	}
	s.log = append(s.log, fmt.Sprintf("%s of %v, target %s: %v", name, dirs, target, err))
	outcome[fmt.Sprint(name, " refused: ", err != nil)]++
	if len(holders) > 1 && err == nil && (name != "flush" || len(dirs) > 0) {
		s.fatal("directories of the runs %v were taken together", holders)
	}
	for d, was := range before {
		is := s.look(d)
		for e, run := range is.epochs {
			if old, there := was.epochs[e]; (!there || old != run) && run != is.run {
				s.fatal("epoch %d of run %q came into %s, which belongs to %q", e, run, d, is.run)
			}
		}
		if was.run != "" && is.run != "" && was.run != is.run {
			s.fatal("%s belonged to run %q and belongs to %q now", d, was.run, is.run)
		}
		for e, run := range was.epochs {
			if was.run != "" && run != was.run && is.epochs[e] != run {
				s.fatal("epoch %d of run %q is gone from %s, which belongs to %q: it may be the only copy", e, run, d,
					was.run)
			}
		}
	}
}
