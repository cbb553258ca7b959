package coordinated

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// TestResizedDirectoriesVerify: the tools find nothing wrong with directories that hold epochs of several numbers of
// ranks.
func TestResizedDirectoriesVerify(t *testing.T) {
	opt := testOptions(t)
	for i, ranks := range []int{4, 2, 3} {
		if err := runElastic(t, ranks, opt, &elastic{until: 2 * (i + 1), start: 2 * i}); err != nil {
			t.Fatalf("start %d on %d ranks: %v", i, ranks, err)
		}
	}
	v, err := checkpoints.Open(t.Context(), opt.Local, opt.Global)
	if err != nil {
		t.Fatal(err)
	}
	if found := v.VerifyDirs(); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	epochs, err := v.Expected()
	if err != nil || len(epochs) != 3 {
		t.Fatalf("got epochs %v, %v, want three", epochs, err)
	}
	for _, e := range epochs {
		found, err := v.Verify(t.Context(), e)
		if err != nil || len(found) > 0 {
			t.Errorf("epoch %d: got %v, %v", e, found, err)
		}
	}
	for e, size := range map[int]int{1: 4, 2: 2, 3: 3} {
		sh, err := v.Fetch(t.Context(), epochs[3-e], size-1)
		if err != nil {
			t.Errorf("the last rank of epoch %d: %v", e, err)
			continue
		}
		if err := sh.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestResizeNeedsQuiet: an epoch with a message in flight is refused by another number of ranks, and says to whom.
func TestResizeNeedsQuiet(t *testing.T) {
	opt := testOptions(t)
	opt.Elastic, opt.OnLost = true, func(*LostError) {}
	run := func(ranks int) error {
		return mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(func(world *mpiwrap.Comm) error {
			ctx := context.Background()
			ck, err := Open(ctx, world, opt)
			if err != nil {
				return err
			}
			step := 0
			err = ck.ProtectReplicated("step", &step)
			restored := false
			if err == nil {
				restored, err = ck.Restore(ctx)
			}
			if err == nil && !restored && world.Rank() == 0 {
				err = errors.Join(mpiwrap.Send(world, []float64{1}, 1, 7), ck.RequestStop(ctx))
			}
			for err == nil && !restored {
				err = ck.Point(ctx)
			}
			if errors.Is(err, ErrStop) {
				return ck.Close()
			}
			if err != nil {
				ck.Abort(err)
				return err
			}
			if world.Rank() == 1 {
				in := []float64{0}
				_, err = mpiwrap.Recv(world, in, 0, 7)
			}
			return errors.Join(err, ck.Close())
		})
	}
	if err := run(2); err != nil {
		t.Fatal(err)
	}
	if err := run(3); err == nil || !strings.Contains(err.Error(), "rank(s) 1 had messages on their way") {
		t.Errorf("got %v, want the rank whose message was in flight", err)
	}
	if err := run(2); err != nil {
		t.Errorf("the same number of ranks: %v", err)
	}
}
