package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
)

// bags are sets of items of every kind.
type bags struct {
	ranks, rank int
	patches     map[int32][]float32 // of several lengths, also none
	names       map[string][3]int64
	far         map[uint64]byte // keys of all magnitudes
	stay        map[int64]int64 // without a rule: a key for each rank that wrote them
}

func patchOwner(k int32, ranks int) int { return int(k+100) / 3 % ranks }

func (b *bags) protect(ck *coordinated.Checkpointer) error {
	return errors.Join(coordinated.ProtectItems(ck, "patches", &b.patches, patchOwner),
		coordinated.ProtectItems(ck, "names", &b.names, coordinated.HashOwner), coordinated.ProtectItems(ck, "far",
			&b.far, coordinated.HashOwner),
		coordinated.ProtectItems(ck, "stay", &b.stay, nil))
}

// fill gives the rank the items that it has at a step: they wander from rank to rank.
func (b *bags) fill(step int) {
	b.make(step, func(i, _ int) int { return (i*step + i/7) % b.ranks })
	b.stay = map[int64]int64{int64(b.rank): int64(b.ranks)}
}

// make makes the items of a step that are at this rank. at says where item i is, of which the rule says owner.
func (b *bags) make(step int, at func(i, owner int) int) {
	b.patches, b.names, b.far = map[int32][]float32{}, map[string][3]int64{}, map[uint64]byte{}
	for i := range 60 {
		if k := int32(i*i - 100); at(i, patchOwner(k, b.ranks)) == b.rank {
			b.patches[k] = slices.Repeat([]float32{float32(i*10 + step)}, i*i%23)
		}
		if k := strings.Repeat("é", i%5) + fmt.Sprint(i); at(i, coordinated.HashOwner(k, b.ranks)) == b.rank {
			b.names[k] = [3]int64{int64(i), int64(step), -1}
		}
		k := uint64(i) << i
		if i == 59 {
			k = math.MaxUint64
		}
		if at(i, coordinated.HashOwner(k, b.ranks)) == b.rank {
			b.far[k] = byte(i + step)
		}
	}
}

// check compares what a restore has brought with what the rules say, item by item.
func (b *bags) check(step int) error {
	want := bags{ranks: b.ranks, rank: b.rank}
	want.make(step, func(_, owner int) int { return owner })
	if !maps.EqualFunc(b.patches, want.patches, slices.Equal) || !maps.Equal(b.names, want.names) ||
		!maps.Equal(b.far, want.far) {
		return fmt.Errorf("items at step %d of rank %d: got %v, want %v", step, b.rank, *b, want)
	}
	for k, wrote := range b.stay {
		if int(k)*b.ranks/int(wrote) != b.rank {
			return fmt.Errorf("item %d of %d is at rank %d of %d", k, wrote, b.rank, b.ranks)
		}
	}
	return nil
}

// runItems has a program protect a set with one item for each rank, and take a checkpoint at once. It returns the
// error of the checkpoint, or of Restore.
func runItems(t *testing.T, opt coordinated.Options, ranks int, key func(rank int) int, owner func(rank, key,
	ranks int) int,
	want func(items map[int][]int16, restored bool) error) error {
	t.Helper()
	opt.Elastic, opt.OnLost = true, func(*coordinated.LostError) {}
	return mpitest.NewWorld(ranks, mpitest.Options{Seed: 3}).Run(func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, err := coordinated.Open(ctx, world, opt)
		if err != nil {
			return err
		}
		items := map[int][]int16{key(world.Rank()): {7, int16(world.Rank())}}
		err = coordinated.ProtectItems(ck, "cells", &items, func(k, ranks int) int {
			return owner(world.Rank(), k,
				ranks)
		})
		restored := false
		if err == nil {
			restored, err = ck.Restore(ctx)
		}
		if err == nil && want != nil {
			err = want(items, restored)
		}
		if err == nil && world.Rank() == 0 {
			err = ck.Request(ctx)
		}
		for err == nil && len(ck.Stats().Epochs) == 0 {
			err = ck.Point(ctx)
		}
		if err != nil {
			ck.Abort(err)
			return err
		}
		err = ck.Wait(ctx, storage.LevelLocal)
		return errors.Join(err, ck.Close())
	})
}

// TestItemsRefused: keys that two ranks have fail the checkpoint, and rules that cannot be the restore; the errors name
// the set, the key and the ranks, and the map stays as it was.
func TestItemsRefused(t *testing.T) {
	own := func(_, k, ranks int) int { return k % ranks }
	each := func(rank int) int { return 10 + rank }
	t.Run("twice", func(t *testing.T) {
		err := runItems(t, jobtest.Options(t), 3, func(rank int) int { return -5 + rank%2 }, own, nil)
		if err == nil || !strings.Contains(err.Error(), `items "cells": key -5 is at rank 0 and at rank 2`) {
			t.Errorf("got %v, want the key and the ranks", err)
		}
	})
	opt := jobtest.Options(t)
	if err := runItems(t, opt, 3, each, own, nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		owner func(rank, key, ranks int) int
		want  string
	}{
		"no rank":        {func(_, _, ranks int) int { return ranks }, `the owner rule sends item 10 to rank 2`},
		"below":          {func(_, k, _ int) int { return 11 - k }, `the owner rule sends item 12 to rank -1`},
		"differs":        {func(rank, _, _ int) int { return rank }, `items "cells": the owner rule assigns them in`},
		"differs by one": {func(rank, k, _ int) int { return k / 12 * rank }, "on rank 0 and in another on rank 1"},
	} {
		t.Run(name, func(t *testing.T) {
			err := runItems(t, opt, 2, each, c.owner, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
	want := func(items map[int][]int16, restored bool) error {
		if !restored || len(items) != 3 || !slices.Equal(items[12], []int16{7, 2}) {
			return fmt.Errorf("restored %v: %v", restored, items)
		}
		return nil
	}
	if err := runItems(t, opt, 1, each, own, want); err != nil {
		t.Errorf("with a rule that can be: %v", err)
	}
}

// TestItemsOfWrongTypes: what cannot be a set is refused at once.
func TestItemsOfWrongTypes(t *testing.T) {
	err := mpitest.NewWorld(1, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
		ck, err := coordinated.Open(t.Context(), world, jobtest.Options(t))
		if err != nil {
			return err
		}
		for _, err := range []error{coordinated.ProtectItems(ck, "nil", (*map[int]int)(nil), nil),
			coordinated.ProtectItems(ck, "pointers", &map[int]*int{}, nil), coordinated.ProtectItems(ck, "lists",
				&map[string][]string{}, nil),
			coordinated.ProtectItems(ck, "nothing", &map[string][]struct{}{}, nil),
			coordinated.ProtectItems(ck, "a/b", &map[string]int{}, nil)} {
			var bad *coordinated.ProtectError
			if !errors.As(err, &bad) {
				t.Errorf("got %v, want a *ProtectError", err)
			}
		}
		return ck.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}
