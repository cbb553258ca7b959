package campaigns

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

var keepSeeds = flag.Uint64("keepseeds", 25, "how many random jobs TestKeptUnderFire runs")

// TestKeptUnderFire runs random jobs of two ranks that keep two epochs: votes
// fail at every step, runs die between the manifests, entries appear that are
// no store's, manifests are damaged, and ranks prune whenever they like. After each
// checkpoint that all ranks agree on, the two newest of those must be whole on
// both ranks' disks, and the rest must not pile up.
func TestKeptUnderFire(t *testing.T) {
	if testing.Short() {
		*keepSeeds = min(*keepSeeds, 8)
	}
	for seed := range *keepSeeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			j := &keepJob{t: t, rand: rand.New(rand.NewPCG(seed, 7)), fs: jobtest.NewWorldFS()}
			j.open()
			for range 25 {
				j.step()
			}
			j.w.Stop()
		})
	}
}

// keepJob is a job and what is known of it.
type keepJob struct {
	t      *testing.T
	rand   *rand.Rand
	fs     *crashfs.FS
	w      *jobtest.World
	next   storage.Epoch
	agreed []storage.Epoch // ascending
	due    []storage.Epoch // the newest two of them that were good when they were taken
	strays []string
	voted  bool // in this run
	log    []string
}

func (j *keepJob) note(format string, args ...any) {
	j.log = append(j.log, fmt.Sprintf(format, args...))
}

func (j *keepJob) fatal(format string, args ...any) {
	j.t.Helper()
	j.t.Fatalf("%s\nafter: %s\n%s", fmt.Sprintf(format, args...), strings.Join(j.log, ", "), j.fs)
}

func (j *keepJob) open() {
	w, err := jobtest.OpenLocal(j.fs, func(l *storage.LevelConfig) { l.Keep, l.Full = 2, true })
	if err != nil {
		j.fatal("open: %v", err)
	}
	j.w = w
}

func (j *keepJob) step() {
	j.next++
	switch e := j.next; j.rand.IntN(9) {
	case 0:
		j.note("rank cannot write epoch %d", e)
		j.failing("write", e, func() { j.take(e) })
	case 1, 2:
		j.note("rank cannot write manifest of %d", e)
		j.failing("rename", e, func() { j.take(e) })
	case 3:
		j.note("death in the commit of %d", e)
		j.die(e)
	case 4:
		j.note("stray")
		j.stray()
		j.take(e)
	case 5:
		j.note("damage")
		j.damage()
		j.take(e)
	default:
		j.note("epoch %d", e)
		j.take(e)
	}
	j.check()
}

// failing lets one kind of operation fail on one rank's files of the epoch.
func (j *keepJob) failing(kind string, e storage.Epoch, do func()) {
	dir := fmt.Sprintf("/local%d/%s/", j.rand.IntN(jobtest.WorldSize), format.EpochName(e))
	j.fs.SetRule(func(op crashfs.Op) error {
		hit := op.Kind == kind && strings.HasPrefix(op.Name, dir)
		if hit && (kind == "write" || strings.HasSuffix(op.Name, format.ManifestName)) {
			return syscall.ENOSPC
		}
		return nil
	})
	do()
	j.fs.SetRule(nil)
}

// mayPrune lets ranks prune at a time of their own, once they have voted: a job
// prunes after a commit.
func (j *keepJob) mayPrune() {
	if !j.voted {
		return
	}
	for _, s := range j.w.Stores {
		if j.rand.IntN(3) == 0 {
			if _, err := s.Prune(context.Background()); err != nil {
				j.fatal("prune: %v", err)
			}
		}
	}
}

// take is a checkpoint with its two votes, as a job does it.
func (j *keepJob) take(e storage.Epoch) {
	infos, err := j.put(e)
	j.mayPrune()
	if err != nil {
		giveUp(j.w, e)
		return
	}
	var failed error
	for _, s := range j.w.Stores {
		failed = errors.Join(failed, s.Commit(context.Background(), e, storage.LevelLocal, infos))
		j.mayPrune()
	}
	for _, s := range j.w.Stores {
		if failed != nil {
			err = s.Withdraw(e, storage.LevelLocal)
		} else {
			err = s.Committed(e, storage.LevelLocal)
		}
		if err != nil {
			j.fatal("%v", err)
		}
	}
	j.voted = true
	if failed == nil {
		j.agreed = append(j.agreed, e)
		j.due = append(j.due, e)
		j.due = j.due[max(len(j.due)-2, 0):]
		j.w.Agree(j.t, storage.LevelLocal)
	}
	j.w.Prune(j.t)
}

func (j *keepJob) put(e storage.Epoch) ([]storage.ShardInfo, error) {
	return j.w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Put(context.Background(), e, storage.LevelLocal, jobtest.SmallSections(r, e))
	})
}

// die commits on some ranks, in any order, and starts again.
func (j *keepJob) die(e storage.Epoch) {
	infos, err := j.put(e)
	if err != nil {
		j.fatal("put: %v", err)
	}
	who := j.rand.IntN(jobtest.WorldSize)
	if err := j.w.Stores[who].Commit(context.Background(), e, storage.LevelLocal, infos); err != nil {
		j.fatal("commit: %v", err)
	}
	j.w.Stop()
	j.fs = j.fs.Crash(crashfs.Survival(j.rand.IntN(3)), j.rand.Uint64())
	j.voted = false
	j.open()
}

// stray puts something that is no store's into an epoch.
func (j *keepJob) stray() {
	dir := fmt.Sprintf("/local%d/%s", j.rand.IntN(jobtest.WorldSize),
		format.EpochName(1+storage.Epoch(j.rand.Uint64N(uint64(j.next)))))
	if _, err := j.fs.Stat(dir); err != nil {
		return
	}
	name := fmt.Sprintf("%s/.nfs%d", dir, j.rand.Uint32())
	if j.rand.IntN(2) == 0 {
		j.fs.MkdirAll(name)
	} else if err := level.WriteFile(j.fs, name, []byte("x")); err != nil {
		j.fatal("%v", err)
	}
	if err := j.fs.SyncDir(dir); err != nil {
		j.fatal("%v", err)
	}
	j.strays = append(j.strays, name)
}

// damage turns a bit in the manifest of an agreed epoch.
func (j *keepJob) damage() {
	if len(j.agreed) == 0 {
		return
	}
	e := j.agreed[len(j.agreed)-1-j.rand.IntN(min(3, len(j.agreed)))]
	file := fmt.Sprintf("/local%d/%s/%s", j.rand.IntN(jobtest.WorldSize), format.EpochName(e), format.ManifestName)
	if err := j.fs.Flip(file, 20,
		1); err == nil {
		j.due = slices.DeleteFunc(j.due, func(d storage.Epoch) bool { return d == e })
	}
}

// check wants the two newest agreed epochs on both ranks, and little else.
func (j *keepJob) check() {
	j.t.Helper()
	for _, e := range j.due {
		if err := j.w.Check(e); err != nil {
			j.fatal("epoch %d is one of the two newest: %v", e, err)
		}
	}
	for _, name := range j.strays {
		if _, err := j.fs.Stat(name); err != nil {
			j.fatal("%s was not ours: %v", name, err)
		}
	}
	for r := range j.w.Stores {
		epochs, err := j.w.At(r, 0).Epochs()
		if err != nil {
			j.fatal("%v", err)
		}
		old := 0
		for _, e := range epochs {
			have, _ := level.HasManifest(j.w.At(r, 0), e)
			if n := len(j.agreed); have && n >= 6 && e < j.agreed[n-6] {
				old++
			}
		}
		if old > 0 {
			j.fatal("rank %d has %d epochs older than the six newest agreed ones: %v", r, old, epochs)
		}
	}
}

// keepingJob takes epochs, has one kept, and takes that back. It says which epochs must be at global
// for sure, and which are kept.
func keepingJob(f *crashfs.FS) (kept []storage.Epoch, err error) {
	ctx := vfs.With(context.Background(), f)
	w, err := jobtest.OpenWorld(f)
	defer w.Stop()
	take := func(epochs ...storage.Epoch) {
		for _, e := range epochs {
			if err == nil {
				err = w.TakeEpoch(e, func(storage.Epoch) {})
			}
		}
	}
	take(1, 2)
	if err != nil {
		return nil, err
	}
	if err = checkpoints.PinEpoch(ctx, "/global", 2, "good"); err != nil {
		return nil, err
	}
	kept = []storage.Epoch{2}
	take(3, 4)
	if err == nil {
		if err = w.Stores[0].PinByRule(ctx, 4, storage.LevelGlobal, 4, 0); err == nil {
			kept = append(kept, 4)
		}
	}
	take(5)
	if err == nil {
		kept = []storage.Epoch{4}
		err = checkpoints.UnpinEpoch(ctx, "/global", 2)
	}
	take(6)
	return kept, err
}

// TestKeptThroughCrashes takes the machine down at operations of a job that keeps epochs, and
// starts again: what was kept is there, whole, after further epochs and prunes.
func TestKeptThroughCrashes(t *testing.T) {
	f := jobtest.NewWorldFS()
	if _, err := keepingJob(f); err != nil {
		t.Fatal(err)
	}
	modes := []crashfs.Survival{crashfs.LoseAll, crashfs.KeepAll, crashfs.Torn}
	for at := range f.Ops() {
		step := 3
		if testing.Short() {
			step = 41
		}
		if at%step != 0 {
			continue
		}
		f := jobtest.NewWorldFS()
		var last crashfs.Op
		f.SetRule(func(op crashfs.Op) error {
			if op.N == at {
				last = op
				return crashfs.ErrCrashed
			}
			return nil
		})
		kept, err := keepingJob(f)
		if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatalf("crash before op %d: got %v, want ErrCrashed", at, err)
		}
		checkCrashed(t, f.Crash(modes[at/step%3], uint64(at)), at, last, 0)
		g := f.Crash(modes[at/step%3], uint64(at))
		w, err := jobtest.OpenWorld(g)
		if err != nil {
			t.Fatal(err)
		}
		next := storage.Epoch(100)
		for e := next; e < next+3; e++ {
			if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil {
				t.Fatalf("op %d: %v", at, err)
			}
		}
		global := w.At(0, 1)
		for _, e := range kept {
			if err := jobtest.WholeEpoch(global, e); err != nil {
				t.Fatalf("crash before op %d (%s %s): a kept epoch: %v\n%s", at, last.Kind, last.Name, err, g)
			}
		}
		if err := w.WholeEpochs(); err != nil {
			t.Fatalf("op %d: %v", at, err)
		}
		w.Stop()
	}
}
