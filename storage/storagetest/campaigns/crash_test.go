package campaigns

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

const crashEpochs = 4

// runJob takes epochs until the machine goes down. It returns the newest epoch
// that was committed for sure.
func runJob(f *crashfs.FS) (sure storage.Epoch, err error) {
	w, err := jobtest.OpenWorld(f)
	defer w.Stop()
	for e := storage.Epoch(1); err == nil && e <= crashEpochs; e++ {
		err = w.TakeEpoch(e, func(e storage.Epoch) { sure = e })
	}
	return sure, err
}

func TestCrashAtEveryOperation(t *testing.T) {
	f := jobtest.NewWorldFS()
	if _, err := runJob(f); err != nil {
		t.Fatal(err)
	}
	total := f.Ops()
	seen, tried := map[outcome]bool{}, 0
	for at := range total {
		if testing.Short() && at%29 != 0 {
			continue
		}
		tried += crashOnce(t, at, seen)
	}
	t.Logf("%d operations, %d outcomes of their crashes, %d of them different", total, tried, len(seen))
}

// outcome is what a crash left, and the newest epoch that has to be there.
type outcome struct {
	left [32]byte
	sure storage.Epoch
}

// crashOnce takes the machine down before operation at, starts the job again on each outcome that was not seen before,
// and checks that all committed epochs are there and that it can go on. It returns the number of outcomes.
func crashOnce(t *testing.T, at int, seen map[outcome]bool) (tried int) {
	t.Helper()
	f := jobtest.NewWorldFS()
	var last crashfs.Op
	f.SetRule(func(op crashfs.Op) error {
		if op.N == at {
			last = op
			return crashfs.ErrCrashed
		}
		return nil
	})
	sure, err := runJob(f)
	if err == nil {
		return 0 // this run needed fewer operations
	}
	if !errors.Is(err, crashfs.ErrCrashed) {
		t.Fatalf("crash before op %d: got %v, want ErrCrashed", at, err)
	}
	check := func(g *crashfs.FS) {
		tried++
		if o := (outcome{g.Sum(), sure}); !seen[o] {
			seen[o] = true
			checkCrashed(t, g, at, last, sure)
		}
	}
	for _, mode := range []crashfs.Survival{crashfs.LoseAll, crashfs.KeepAll, crashfs.Torn} {
		check(f.Crash(mode, uint64(at)))
	}
	if n := f.Unsynced(); n <= allOutcomes {
		for names := range uint64(1) << n {
			check(f.CrashNames(names, uint64(at)))
		}
	}
	return tried
}

// allOutcomes is up to how many unsynced changes of names all outcomes are tried.
const allOutcomes = 3

// checkCrashed starts the job again on what a crash left.
func checkCrashed(t *testing.T, g *crashfs.FS, at int, last crashfs.Op, sure storage.Epoch) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("crash before op %d (%s %s), %d sure: %s\nleft:\n%s", at, last.Kind, last.Name, sure,
			fmt.Sprintf(format, args...), g)
	}
	w, err := jobtest.OpenWorld(g)
	defer w.Stop()
	if err != nil {
		fail("reopen: %v", err)
	}
	if err := w.WholeEpochs(); err != nil {
		fail("%v", err)
	}
	newest, err := w.Stores.Newest()
	if err != nil {
		fail("candidates: %v", err)
	}
	if newest < sure {
		fail("newest is %d", newest)
	}
	if newest > 0 {
		if err := w.Check(newest); err != nil {
			fail("restore %d: %v", newest, err)
		}
	}
	next := storage.Epoch(0)
	for _, s := range w.Stores {
		h, err := s.Highest(context.Background())
		if err != nil {
			fail("highest: %v", err)
		}
		next = max(next, h+1)
	}
	if err := w.TakeEpoch(next, func(storage.Epoch) {}); err != nil {
		fail("continuing with epoch %d: %v", next, err)
	}
	if err := w.Check(next); err != nil {
		fail("restore %d after going on: %v", next, err)
	}
}

// TestErrorAtEveryOperation lets each file operation of a job fail once, as it can: what takes no space finds enough of
// it. At most the epoch under way fails, with an error that says so; the ones before it stay and the ones after it
// succeed.
func TestErrorAtEveryOperation(t *testing.T) {
	probe := jobtest.NewWorldFS()
	if _, err := runJob(probe); err != nil {
		t.Fatal(err)
	}
	total := probe.Ops()
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC} {
		t.Run(errno.Error(), func(t *testing.T) {
			step := 1
			if testing.Short() {
				step = 41
			}
			for at := 0; at < total; at += step {
				at = failOnce(t, at, errno)
			}
		})
	}
}

// failOnce lets the first operation from at on fail that can fail so, and returns its number.
func failOnce(t *testing.T, at int, errno error) int {
	t.Helper()
	f := jobtest.NewWorldFS()
	var hit crashfs.Op
	f.SetRule(func(op crashfs.Op) error {
		if hit.Kind != "" || op.N < at || errno == syscall.ENOSPC && takesNone[op.Kind] {
			return nil
		}
		hit = op
		return errno
	})
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("error at op %d (%s %s): %s\n%s", at, hit.Kind, hit.Name, fmt.Sprintf(format, args...), f)
	}
	w, err := jobtest.OpenWorld(f)
	for tries := 0; err != nil && tries < 2; tries++ { // the job is started again
		if !errors.Is(err, errno) {
			fail("open: got %v", err)
		}
		w.Stop()
		w, err = jobtest.OpenWorld(f)
	}
	defer w.Stop()
	failures := 0
	good := storage.Epoch(0)
	for e := storage.Epoch(1); e <= crashEpochs+1; e++ {
		committed := storage.Epoch(0)
		err := w.TakeEpoch(e, func(e storage.Epoch) { committed = e })
		if err != nil {
			failures++
			if !errors.Is(err, errno) {
				fail("epoch %d: got %v, want the injected error", e, err)
			}
			giveUp(w, e)
		}
		if committed == e {
			good = e
		}
		if good > 0 {
			if err := w.Check(good); err != nil && failures <= 1 {
				fail("epoch %d after taking %d: %v", good, e, err)
			}
		}
	}
	if failures > 1 {
		fail("%d epochs failed", failures)
	}
	if good != crashEpochs+1 {
		fail("newest good epoch is %d, want %d", good, crashEpochs+1)
	}
	return max(at, hit.N)
}

// takesNone are the operations for which a full disk has room.
var takesNone = map[string]bool{"open": true, "read": true, "readdir": true, "size": true, "stat": true, "statfs": true}

// giveUp discards what is not committed.
func giveUp(w *jobtest.World, e storage.Epoch) {
	for _, s := range w.Stores {
		for _, l := range []string{storage.LevelLocal, storage.LevelGlobal} {
			_ = s.Discard(context.Background(), e, l)
		}
	}
}
