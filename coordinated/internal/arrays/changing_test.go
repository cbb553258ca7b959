package arrays_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// oneArray takes a checkpoint of one array on two ranks, or restores one. It returns what the ranks had in memory after
// Restore, and their errors: of Restore, else of the checkpoint.
func oneArray(t *testing.T, opt coordinated.Options, of func(rank int) coordinated.Changing) (mem [2][]int32,
	errs [2]error) {
	t.Helper()
	opt.Elastic = true
	err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
		ctx, rank := context.Background(), world.Rank()
		ck, err := coordinated.Open(ctx, world, opt)
		if err != nil {
			return err
		}
		u := []int32{int32(rank), 7}
		if err := ck.ProtectChanging("u", of(rank), &u); err != nil {
			return err
		}
		_, err = ck.Restore(ctx)
		mem[rank], errs[rank] = slices.Clone(u), err
		if err != nil {
			return ck.Close()
		}
		if rank == 0 {
			err = ck.Request(ctx)
		}
		for err == nil && len(ck.Stats().Epochs) == 0 {
			err = ck.Point(ctx)
		}
		if err := errors.Join(err, ck.Close()); err != nil {
			return err
		}
		if all := ck.Stats().Epochs; len(all) > 0 {
			errs[rank] = all[len(all)-1].Err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return mem, errs
}

// half returns an array of n elements of which each rank has n/2.
func half(n, rank int) coordinated.Array { return coordinated.Block([]int{n}, []int{2}, rank) }

// halvesSaved are options of a job that has a checkpoint of two halves of an array.
func halvesSaved(t *testing.T) coordinated.Options {
	t.Helper()
	opt := jobtest.Options(t)
	opt.OnLost = func(*coordinated.LostError) {}
	if _, errs := oneArray(t, opt, func(rank int) coordinated.Changing {
		return coordinated.Changing{Now: func() coordinated.Array { return half(4, rank) }}
	}); errs != [2]error{} {
		t.Fatal(errs)
	}
	return opt
}

// TestChangingRefused: what the ranks say of an array at a checkpoint has to fit together. The checkpoint fails on all
// of them, with an error that names the array, the ranks and what they say; the program continues.
func TestChangingRefused(t *testing.T) {
	for name, c := range map[string]struct {
		now  func(rank int) coordinated.Array
		want string
	}{
		"dimensions": {func(rank int) coordinated.Array { return half(4-rank, 0) },
			`array "u": dimensions [4] at rank 0, but [3] at rank 1`},
		"a list on one": {func(rank int) coordinated.Array {
			if rank == 0 {
				return coordinated.List(2)
			}
			return half(4, rank)
		}, `array "u": dimensions of a List at rank 0, but [4] at rank 1`},
		"hole": {func(rank int) coordinated.Array { return coordinated.Block([]int{8}, []int{4}, rank) },
			`array "u" has a hole: no rank owns [4:8], beside what rank 1 owns`},
		"twice": {func(int) coordinated.Array { return half(4, 1) }, `array "u" has a hole: no rank owns [0:2]`},
		"nothing on one": {func(rank int) coordinated.Array {
			if rank == 1 {
				return coordinated.Array{}
			}
			return half(4, rank)
		}, `rank 1: capture "u": the array has no dimensions`},
		"memory too short": {func(rank int) coordinated.Array { return coordinated.List(2 + rank) },
			`rank 1: capture "u": block 0 takes the elements 0 to 2 of the memory, which has 2`},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := oneArray(t, jobtest.Options(t), func(rank int) coordinated.Changing {
				return coordinated.Changing{Now: func() coordinated.Array { return c.now(rank) }}
			})
			for rank, err := range errs {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("rank %d: got %T %v, want %q", rank, err, err, c.want)
				}
			}
		})
	}
}

// TestChangingNotRestored: Restore fails on all ranks alike, and changes nothing, where what they want of an array does
// not have each element once, or cannot be.
func TestChangingNotRestored(t *testing.T) {
	opt := halvesSaved(t)
	for name, c := range map[string]struct {
		restored func(rank int, was coordinated.SavedArray) (coordinated.Array, error)
		want     string
	}{
		"hole": {func(rank int, was coordinated.SavedArray) (coordinated.Array, error) {
			return coordinated.Block(was.Dims, []int{3}, rank), nil
		}, `array "u" has a hole: no rank owns [2:4]`},
		"twice": {func(int, coordinated.SavedArray) (coordinated.Array, error) { return half(4, 1), nil },
			"[0:2]"},
		"both": {func(rank int, was coordinated.SavedArray) (coordinated.Array, error) {
			return coordinated.Array{Dims: was.Dims,
				Boxes: []coordinated.Box{{Start: []int{rank}, Count: []int{4 - 2*rank}}}}, nil
		}, "rank 0 and rank 1 both own [1:3]"},
		"other dimensions": {func(rank int, was coordinated.SavedArray) (coordinated.Array, error) {
			return half(5, rank), nil
		}, `"u", which has the dimensions [4] in the epoch: it is divided as an array of [5]`},
		"a list": {func(int, coordinated.SavedArray) (coordinated.Array, error) { return coordinated.List(2), nil },
			"returned a List"},
		"an error on one": {func(rank int, was coordinated.SavedArray) (coordinated.Array, error) {
			if rank == 1 {
				return coordinated.Array{}, errors.New("the mesh is too large")
			}
			return half(4, rank), nil
		}, `rank 1: restore "u", which has the dimensions [4] in the epoch: the mesh is too large`},
	} {
		t.Run(name, func(t *testing.T) {
			mem, errs := oneArray(t, opt, func(rank int) coordinated.Changing {
				return coordinated.Changing{Now: func() coordinated.Array { return half(4, rank) },
					Restored: func(was coordinated.SavedArray) (coordinated.Array,
						error) {
						return c.restored(rank, was)
					}}
			})
			for rank, err := range errs {
				if !is[*coordinated.RestoreError](err) || !strings.Contains(err.Error(),
					c.want) {
					t.Errorf("rank %d: got %T %v, want %q", rank, err, err, c.want)
				}
				if want := []int32{int32(rank), 7}; !slices.Equal(mem[rank], want) {
					t.Errorf("rank %d has %v after a restore that failed, want %v", rank, mem[rank], want)
				}
			}
		})
	}
}

// TestChangingDeclared: what a program can do wrong before Restore.
func TestChangingDeclared(t *testing.T) {
	opt := jobtest.Options(t)
	err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		dev, err := gpustate.Open(gpustate.Select{Kind: "fake"})
		if err != nil {
			return err
		}
		buf, err := dev.Buffer("b", 8)
		if err != nil {
			return err
		}
		ck, err := coordinated.Open(ctx, world, opt)
		if err != nil {
			return err
		}
		var u []int32
		var none *gpustate.Buffer
		now := func() coordinated.Array { return coordinated.List(0) }
		for _, c := range []struct {
			err  error
			want string
		}{
			{ck.ProtectGlobal("u", coordinated.List(3), &u), "use ProtectList or ProtectChanging"},
			{ck.ProtectGlobal("u", half(4, 0), coordinated.InBufferAt[int32](&buf)), "use InBuffer"},
			{ck.ProtectChanging("u", coordinated.Changing{}, &u), "Changing.Now is nil"},
			{ck.ProtectChanging("u", coordinated.Changing{Now: now}, coordinated.InBuffer[int32](buf)),
				"with InBufferAt"},
			{ck.ProtectChanging("u", coordinated.Changing{Now: now}, coordinated.InBufferAt[int32](&none)),
				"make it first"},
			{ck.ProtectList("u", u), "a list is a pointer to a slice"},
			{ck.ProtectList("u", coordinated.InBufferAt[int32](&buf)), "ProtectChanging with InBufferAt"},
			{ck.ProtectList("u", &[]string{}), "mean nothing in another process"},
		} {
			if !is[*coordinated.ProtectError](c.err) || !strings.Contains(c.err.Error(), c.want) {
				t.Errorf("got %T %v, want %q", c.err, c.err, c.want)
			}
		}
		if world.Rank() == 0 {
			err = ck.ProtectList("u", &u)
		} else {
			err = ck.ProtectGlobal("u", coordinated.Array{Dims: []int{0}}, &u)
		}
		if err != nil {
			return err
		}
		const want = `array "u": type int32, with dimensions that change at rank 0, but int32 at rank 1`
		if _, err := ck.Restore(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: got %T %v, want %q", world.Rank(), err, err, want)
		}
		return errors.Join(ck.Close(), dev.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestChangingType: an epoch with another type, or without the array, is refused by name.
func TestChangingType(t *testing.T) {
	opt := halvesSaved(t)
	opt.Elastic = true
	for _, c := range []struct{ name, want string }{
		{"u", `restore "u": the checkpoint has array of int32, [4], the program array of float64, with dimensions`},
		{"v", `restore "v" (array of float64, with dimensions that change): the checkpoint has nothing of that name`},
	} {
		err := mpitest.NewWorld(3, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
			ck, err := coordinated.Open(context.Background(), world, opt)
			if err != nil {
				return err
			}
			var list []float64
			if err := ck.ProtectList(c.name, &list); err != nil {
				return err
			}
			if _, err := ck.Restore(context.Background()); !is[*coordinated.MismatchError](err) ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got %T %v, want %q", err, err, c.want)
			}
			return ck.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestArraysThatCannotBe: what the helpers are given that cannot be is said when the array is protected.
func TestArraysThatCannotBe(t *testing.T) {
	opt := jobtest.Options(t)
	err := mpitest.NewWorld(1, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
		ck, err := coordinated.Open(context.Background(), world, opt)
		if err != nil {
			return err
		}
		u := make([]float32, 100)
		for _, c := range []struct {
			a    coordinated.Array
			want string
		}{
			{coordinated.Array{}, "the array has no dimensions; divide it by Block"},
			{coordinated.Block([]int{4, 4}, []int{1},
				0), "the grid [1] does not have an entry for each of the dimensions [4 4]"},
			{coordinated.Block([]int{4}, []int{2}, 2), "rank 2 is not in the grid [2], which has places for 2 ranks"},
			{coordinated.Block([]int{4}, []int{0}, 0), "rank 0 is not in the grid [0], which has places for 0 ranks"},
			{coordinated.Block([]int{4, -1}, []int{1, 1}, 0), "dimension 1 has -1 indices"},
			{coordinated.BlockCyclic([]int{4}, []int{1}, []int{0}, 0), "blocks have 0 indices in dimension 0"},
			{coordinated.BlockCyclic([]int{4}, []int{1}, []int{2, 2}, 0), "2 lengths of blocks for 1 dimensions"},
			{coordinated.BlockCyclic([]int{-4}, []int{1}, []int{2}, 0), "dimension 0 has -4 indices"},
			{coordinated.Variable([]int{3, -1}, 0), "rank 1 has -1 elements"},
			{coordinated.Variable([]int{3}, 1), "there are the lengths of 1 ranks, and this is rank 1"},
			{coordinated.Block([]int{4, 4}, []int{1, 1}, 0).Ghosts(1), "a box has 1 entries in Low for 2 dimensions"},
			{coordinated.Array{Dims: []int{-2}}, "dimension 0 has -2 indices"},
			{coordinated.Array{Dims: []int{2}, Boxes: []coordinated.Box{{Start: []int{1}, Count: []int{2}}}},
				"ends at 3 in dimension 0"},
		} {
			err := ck.ProtectGlobal("u", c.a, &u)
			if !is[*coordinated.ProtectError](err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %T %v, want %q", err, err, c.want)
			}
			_ = c.a.Len() // which does not panic
		}
		rows := [][]float32{u}
		if err := ck.ProtectGlobal("u", coordinated.Block([]int{1, 100}, []int{1, 1}, 0), &rows); err == nil ||
			!strings.Contains(err.Error(), "keep the array in one slice") {
			t.Errorf("got %v", err)
		}
		return ck.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func is[T error](err error) bool {
	var as T
	return errors.As(err, &as)
}
