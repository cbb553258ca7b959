package persist_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// TestSlowLevel runs a job whose flush takes three intervals: the level global has an epoch only when three more have
// been cut. Time is counted in cuts, and stands still while a flush that has had its three ends and the next one
// begins. An epoch is at most two intervals old when its flush begins: one on an idle machine, and on a busy one the
// level may not have been offered the next yet. Nothing queues, in memory or on disk, and all ranks pass over the same
// epochs.
func TestSlowLevel(t *testing.T) {
	const intervals, epochs = 3, 20
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	b.epochs, b.opt.Keep = epochs, 2
	var log testbuf.Buffer
	b.opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
	var mu sync.Mutex
	moved := sync.NewCond(&mu)
	cuts := 0                           // of all ranks
	flushing := map[storage.Epoch]int{} // by epoch: how many cuts there were when its flush began
	arrived := map[storage.Epoch]int{}  // and when it was at global
	var going, there storage.Epoch      // on its way to global, 0: none; the newest that is there
	b.fs.before = func(name string) {
		var e storage.Epoch
		if n, _ := fmt.Sscanf(name, "/global/epoch-%010d/pack", &e); n != 1 {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if _, begun := flushing[e]; !begun {
			flushing[e], going = cuts, e
		}
		for cuts < min(flushing[e]+3*intervals, 3*epochs) {
			moved.Wait()
		}
	}
	b.hook = func(rank int, at string) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case at == "captured":
			cuts++
			moved.Broadcast()
		case at == "copied" && rank == 0:
			arrived[going], there, going = cuts, going, 0
		}
	}
	mayPass := func() bool { // time
		mu.Lock()
		defer mu.Unlock()
		if going > 0 {
			return cuts < flushing[going]+3*intervals
		}
		return cuts == 3*int(there) // else the flush of a newer one begins now
	}
	queued := 0                                         // epochs of which it is not known whether they come to global
	most := 0                                           // epochs in the local directory
	b.ask = func(taken []coordinated.EpochStats) bool { // when the one before is at local
		list, err := b.fs.ReadDir("/local")
		if err != nil {
			t.Error(err)
		}
		n := 0
		for _, f := range list {
			if strings.HasPrefix(f.Name, "epoch-") {
				n++
			}
		}
		most = max(most, n)
		n = 0
		for _, es := range taken {
			if es.Durable[storage.LevelGlobal] == 0 && es.Skipped[storage.LevelGlobal] == 0 {
				n++
			}
		}
		queued = max(queued, n)
		return (len(taken) == 0 || taken[len(taken)-1].Durable[storage.LevelLocal] > 0) && mayPass()
	}
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	if most > 2+4 { // those that keep says; on the way to global, waiting for it, being put, and being removed
		t.Errorf("%d epochs at local", most)
	}
	// One is on its way and one waits; of the next ones, some may not have heard yet whose place they take.
	if queued > 5 {
		t.Errorf("%d epochs wait for global or are on the way there", queued)
	}
	newest := storage.Epoch(0)
	for i, es := range b.stats[0].Epochs {
		at, over := es.Durable[storage.LevelGlobal] > 0, es.Skipped[storage.LevelGlobal]
		switch {
		case es.Err != nil || es.Durable[storage.LevelLocal] == 0 || at == (over > 0):
			t.Errorf("epoch %d: %v, durable %v, skipped %v", es.Epoch, es.Err, es.Durable, es.Skipped)
		case at:
			// In a third of an interval, as some ranks have been cut: the age is counted from the cut of all.
			if age := flushing[es.Epoch] - 3*int(es.Epoch); age > 2*3 {
				t.Errorf("epoch %d was %d/3 intervals old when its flush began, want at most 2", es.Epoch, age)
			}
			if age := arrived[es.Epoch] - 3*int(es.Epoch); age > (2+intervals)*3 {
				t.Errorf("epoch %d was %d/3 intervals old when it was at global, want at most %d", es.Epoch, age,
					2+intervals)
			}
			newest = es.Epoch
		case over <= es.Epoch || !strings.Contains(log.String(), fmt.Sprintf("epoch=%d level=global newer=%d", es.Epoch,
			over)):
			t.Errorf("epoch %d: it is not said that %d takes its place", es.Epoch, over)
		}
		if es.Epoch > newest+intervals+1 {
			t.Errorf("epoch %d was cut, and epoch %d is the newest that has gone to global", es.Epoch, newest)
		}
		for r, s := range b.stats[1:] {
			if got := fmt.Sprint(s.Epochs[i].Skipped); got != fmt.Sprint(es.Skipped) {
				t.Errorf("epoch %d: rank %d passes over %s, rank 0 over %v", es.Epoch, r+1, got, es.Skipped)
			}
		}
	}
	if newest != epochs {
		t.Errorf("epoch %d is the newest at global in the end, want %d", newest, epochs)
	}
	b.hook = nil
	b.restartFromGlobal(t, epochs)
}

// TestLevelsOwnPace: each level takes the epochs that it is to, and a final one comes to all.
func TestLevelsOwnPace(t *testing.T) {
	for _, c := range []struct {
		name   string
		global int
		want   string // levels of each epoch
	}{
		{"global every third", 3, "local+global local local local+global local local local+global local+global"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
			b.opt.GlobalEvery = coordinated.Every{Epochs: c.global}
			b.wire(3)
			var mu sync.Mutex
			at := map[storage.Epoch][]string{}
			err := mpitest.NewWorld(3, mpitest.Options{Seed: 1}).Run(func(world *mpiwrap.Comm) (err error) {
				ck, err := coordinated.Open(b.under(t.Context()), world, b.opt)
				if err != nil {
					return err
				}
				defer ck.CloseOrAbort(&err)
				data := make([]float64, 1000)
				if err := ck.Protect("data", &data); err != nil {
					return err
				}
				if _, err := ck.Restore(t.Context()); err != nil {
					return err
				}
				for e := 1; e <= 8; e++ {
					ask := ck.Request
					if e == 8 {
						ask = ck.RequestStop
					}
					if world.Rank() == 0 {
						if err := ask(t.Context()); err != nil {
							return err
						}
					}
					for len(ck.Stats().Epochs) < e && err == nil {
						err = ck.Point(t.Context())
					}
					if errors.Is(err, coordinated.ErrStop) {
						err = nil
					}
					if err != nil {
						return err
					}
					for es := ck.Stats().Epochs[e-1]; len(es.Durable)+len(es.Skipped) < 2 && es.Err == nil; {
						time.Sleep(time.Millisecond)
						es = ck.Stats().Epochs[e-1]
					}
					if err := world.Barrier(); err != nil {
						return err
					}
				}
				mu.Lock()
				defer mu.Unlock()
				for _, es := range ck.Stats().Epochs {
					var levels []string
					for _, l := range []string{storage.LevelLocal, storage.LevelGlobal} {
						if es.Durable[l] > 0 {
							levels = append(levels, l)
						}
					}
					text := strings.Join(levels, "+")
					if es.Err != nil {
						text = es.Err.Error()
					}
					at[es.Epoch] = append(at[es.Epoch], text)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range strings.Fields(c.want) {
				for r, got := range at[storage.Epoch(i+1)] {
					if got != want {
						t.Errorf("epoch %d, rank %d: got %s, want %s", i+1, r, got, want)
					}
				}
			}
		})
	}
}
