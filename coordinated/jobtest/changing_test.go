package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
)

// particle is an element of a list, with padding in it.
type particle struct {
	ID int32
	X  float64
}

// adaptive is a program whose arrays have other dimensions at each step. It runs up to a step, one checkpoint each, and
// stops after the last.
type adaptive struct {
	start, until int
	device       bool // field is on a device

	mesh  []float64        // [4s, 3+s] by ghosted blocks, and nothing at all at every fifth step
	field []int16          // [s, 5] by cyclic columns: in memory, or
	buf   *gpustate.Buffer // on a device
	rows  []complex64      // rows in runs of a length that differs, restored as it was
	parts []particle       // a list
	spare []float32        // a list that only rank 0 ever has something of
}

// sizes of the arrays at a step.
func meshDims(step int) []int {
	if step%5 == 0 {
		return []int{0, 3}
	}
	return []int{4 * step % 13, 3 + step}
}

func fieldDims(step int) []int { return []int{1 + 9*step%17, 5} }

func mesh(dims []int, ranks, rank int) coordinated.Array {
	return coordinated.Block(dims, gridOf(ranks), rank).Ghosts(1, 2)
}

func field(dims []int, ranks, rank int) coordinated.Array {
	return coordinated.BlockCyclic(dims, []int{1, ranks}, []int{1, 1}, rank)
}

func shareOfField(step, ranks, rank int) *share {
	s := &share{array: field(fieldDims(step), ranks, rank)}
	s.deal([]int{1, ranks}, []int{1, 1}, rank)
	return s
}

// rowsOf returns how many of 2s rows a rank has at a step.
func rowsOf(step, ranks, rank int) coordinated.Array {
	lengths := make([]int, ranks)
	for i := range 2 * step {
		lengths[(i*i+step)%ranks]++
	}
	at := 0
	for _, n := range lengths[:rank] {
		at += n
	}
	a := coordinated.Array{Dims: []int{2 * step, 3}}
	if lengths[rank] > 0 {
		a.Boxes = []coordinated.Box{{Start: []int{at, 0}, Count: []int{lengths[rank], 3}}}
	}
	return a
}

// partsOf returns how many particles a rank has at a step: none at some, many at one.
func partsOf(step, ranks, rank int) int {
	if (rank+step)%ranks == 0 {
		return 100 * step % 700
	}
	return (rank + step) % 3
}

func (p *adaptive) run(opt coordinated.Options) func(*mpiwrap.Comm) error {
	opt.Elastic = true
	return func(world *mpiwrap.Comm) (err error) {
		p := *p // of this rank
		ctx := context.Background()
		var dev *gpustate.Device
		if p.device {
			if dev, err = gpustate.Open(gpustate.Select{Kind: "fake"}); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, dev.Close()) }()
		}
		ck, err := coordinated.Open(withCuts(ctx, smallCuts), world, opt)
		if err != nil {
			return err
		}
		if err := p.body(ctx, world, ck, dev); err != nil && !errors.Is(err, coordinated.ErrStop) {
			ck.Abort(err)
			return err
		}
		return ck.Close()
	}
}

func (p *adaptive) body(ctx context.Context, world *mpiwrap.Comm, ck *coordinated.Checkpointer,
	dev *gpustate.Device) error {
	ranks, rank, step := world.Size(), world.Rank(), 0
	var q *gpustate.Queue
	var memory any = &p.field
	if dev != nil {
		var err error
		if p.buf, err = dev.Buffer("field", 4); err != nil {
			return err
		}
		if q, err = dev.Queue(""); err != nil {
			return err
		}
		memory = coordinated.InBufferAt[int16](&p.buf)
	}
	p.parts = make([]particle, rank) // what is there before a restore means nothing
	err := errors.Join(
		ck.ProtectReplicated("step", &step),
		ck.ProtectChanging("mesh", coordinated.Changing{
			Now: func() coordinated.Array { return mesh(meshDims(step), ranks, rank) },
			Restored: func(was coordinated.SavedArray) (coordinated.Array, error) {
				return mesh(was.Dims, ranks,
					rank), nil
			},
		}, &p.mesh),
		ck.ProtectChanging("field", coordinated.Changing{
			Now: func() coordinated.Array { return field(fieldDims(step), ranks, rank) },
			Restored: func(was coordinated.SavedArray) (coordinated.Array, error) {
				return field(was.Dims, ranks,
					rank), nil
			},
		}, memory),
		ck.ProtectChanging("rows", coordinated.Changing{Now: func() coordinated.Array {
			return rowsOf(step, ranks,
				rank)
		}}, &p.rows),
		ck.ProtectList("parts", &p.parts),
		ck.ProtectList("spare", &p.spare))
	if err != nil {
		return err
	}
	was := p.buf
	restored, err := ck.Restore(ctx)
	if err != nil {
		if p.mesh != nil || p.rows != nil || len(p.parts) != rank || p.buf != was || was != nil && was.Bytes() != 4 {
			return fmt.Errorf("a restore that fails leaves %d, %d and %d elements, and another buffer: %v", len(p.mesh),
				len(p.rows), len(p.parts), p.buf != was)
		}
		return err
	}
	if restored != (p.start > 0) || step != p.start {
		return fmt.Errorf("restored %v, step %d, want step %d", restored, step, p.start)
	}
	if restored {
		if err := p.check(world, step, q); err != nil {
			return fmt.Errorf("rank %d of %d, step %d: %w", rank, ranks, step, err)
		}
	}
	for step < p.until {
		step++
		if err := p.fill(world, step, dev, q); err != nil {
			return err
		}
		if step == p.until && rank == step%ranks {
			if err := ck.RequestStop(ctx); err != nil {
				return err
			}
		}
		if err := world.Barrier(); err != nil {
			return err
		}
		if err := ck.Point(ctx); err != nil {
			return err
		}
	}
	if restored && p.until == p.start {
		return nil
	}
	return jobtest.UntilTaken(ctx, ck)
}

// fill makes the arrays of a step.
func (p *adaptive) fill(world *mpiwrap.Comm, step int, dev *gpustate.Device, q *gpustate.Queue) (err error) {
	ranks, rank := world.Size(), world.Rank()
	p.mesh = elements[float64](&share{array: mesh(meshDims(step), ranks, rank)}, 0, step)
	p.field = elements[int16](shareOfField(step, ranks, rank), 1, step)
	p.rows = elements[complex64](&share{array: rowsOf(step, ranks, rank)}, 2, step)
	first := 0
	for r := range rank {
		first += partsOf(step, ranks, r)
	}
	p.parts = nil
	for i := range partsOf(step, ranks, rank) {
		p.parts = append(p.parts, particle{int32(first + i), float64(step)})
	}
	if p.spare = nil; rank == 0 {
		p.spare = make([]float32, step)
	}
	if dev == nil || len(p.field) == 0 {
		return nil
	}
	if err := p.buf.Release(); err != nil {
		return err
	}
	if p.buf, err = dev.Buffer("", 2*len(p.field)); err != nil {
		return err
	}
	return q.Write(p.buf, 0, bytesOf(p.field))
}

// numberAt returns what an element of array i holds at a step.
func numberAt[T float64 | int16 | complex64](i int, point []int64, step int) (v T) {
	x := int16(value(i, point, step))
	switch p := any(&v).(type) {
	case *float64:
		*p = float64(x)
	case *int16:
		*p = x
	case *complex64:
		*p = complex(float32(x), 1)
	}
	return v
}

// elements returns the memory of an array at a step; what is no element of it is 0.
func elements[T float64 | int16 | complex64](s *share, i, step int) []T {
	mem := make([]T, s.array.Len())
	s.each(func(point []int64, at int) { mem[at] = numberAt[T](i, point, step) })
	return mem
}

// sameElements compares what a rank has with the elements of a program of one rank.
func sameElements[T float64 | int16 | complex64](name string, have []T, s *share, i, step int) error {
	want := elements[T](s, i, step)
	if len(have) != len(want) {
		return fmt.Errorf("%s has %d elements, want %d", name, len(have), len(want))
	}
	bad := 0
	s.each(func(_ []int64, at int) {
		if have[at] != want[at] {
			bad++
		}
	})
	if bad > 0 {
		return fmt.Errorf("%s: %d elements differ: got %v, want %v", name, bad, have, want)
	}
	return nil
}

// check is after a restore.
func (p *adaptive) check(world *mpiwrap.Comm, step int, q *gpustate.Queue) error {
	ranks, rank := world.Size(), world.Rank()
	if q != nil {
		p.field = make([]int16, field(fieldDims(step), ranks, rank).Len())
		if err := q.Read(p.buf, 0, bytesOf(p.field)); err != nil {
			return err
		}
	}
	// Rows were divided by another number of ranks, or by this one; either way they lie in order.
	first, all := make([]int64, 2), make([]int64, 2*ranks)
	first[0], first[1] = int64(len(p.rows)), int64(len(p.parts))
	if err := mpiwrap.Allgather(world, all, first); err != nil {
		return err
	}
	begin, total := [2]int{}, [2]int{}
	for r := range ranks {
		for k := range 2 {
			if r < rank {
				begin[k] += int(all[2*r+k])
			}
			total[k] += int(all[2*r+k])
		}
	}
	rows := coordinated.Array{Dims: []int{2 * step, 3}}
	if len(p.rows) > 0 {
		rows.Boxes = []coordinated.Box{{Start: []int{begin[0] / 3, 0}, Count: []int{len(p.rows) / 3, 3}}}
	}
	if total[0] != 6*step {
		return fmt.Errorf("the ranks have %d elements of rows, want %d", total[0], 6*step)
	}
	for i, x := range p.parts {
		if x != (particle{int32(begin[1] + i), float64(step)}) {
			return fmt.Errorf("particle %d of the rank, %d of all, is %v", i, begin[1]+i, x)
		}
	}
	return errors.Join(sameElements("mesh", p.mesh, &share{array: mesh(meshDims(step), ranks, rank)}, 0, step),
		sameElements("field", p.field, shareOfField(step, ranks, rank), 1, step),
		sameElements("rows", p.rows, &share{array: rows}, 2, step))
}

func bytesOf(list []int16) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), 2*len(list))
}

// TestChangingDims stops a program whose arrays change at each step on P ranks, continues it on Q, and on P; then each
// epoch is restored by the other number of ranks. With -resize-all P and Q are all of 1 to 4.
func TestChangingDims(t *testing.T) {
	for p := 1; p <= 4; p++ {
		for q := 1; q <= 4; q++ {
			if !*resizeAll && q != 1+(p+1)%4 {
				continue
			}
			t.Run(fmt.Sprintf("%d to %d", p, q), func(t *testing.T) {
				opt := jobtest.Options(t)
				opt.Keep = 10
				counts := []int{p, q, q, p, q}
				for i, ranks := range counts {
					run := &adaptive{start: i, until: i + 1, device: (i+p+q)%2 > 0}
					if err := runAdaptive(ranks, opt, run); err != nil {
						t.Fatalf("start %d on %d ranks: %v", i, ranks, err)
					}
				}
				for i := range counts {
					opt.Epoch = storage.Epoch(i + 1)
					run := &adaptive{start: i + 1, until: i + 1, device: (i+p)%2 > 0}
					if err := runAdaptive(p+q-counts[i], opt, run); err != nil {
						t.Fatalf("epoch %d, written by %d ranks, on %d: %v", opt.Epoch, counts[i], p+q-counts[i], err)
					}
				}
			})
		}
	}
}

func runAdaptive(ranks int, opt coordinated.Options, p *adaptive) error {
	err := mpitest.NewWorld(ranks, mpitest.Options{Seed: uint64(ranks)}).Run(p.run(opt))
	if errors.Is(err, coordinated.ErrStop) {
		return nil
	}
	return err
}

// TestChangingFallsBack damages the newest epoch: the one before, of other dimensions, is restored. If only the newest
// may be, nothing of the program has changed.
func TestChangingFallsBack(t *testing.T) {
	for i, ranks := range []int{2, 3, 1, 2} {
		t.Run(fmt.Sprint(ranks, " ranks ", i), func(t *testing.T) {
			opt := jobtest.Options(t)
			opt.Global, opt.OnLost = "", func(*coordinated.LostError) {}
			opt.Logger = slog.New(slog.DiscardHandler) // the damage is no news
			device := i%2 > 0
			for step := range 3 {
				if err := runAdaptive(2, opt, &adaptive{start: step, until: step + 1, device: device}); err != nil {
					t.Fatal(err)
				}
			}
			shard := filepath.Join(opt.Local, "epoch-0000000003", "rank-000001.shard")
			b, err := os.ReadFile(shard)
			if err != nil {
				t.Fatal(err)
			}
			for i := len(b) / 8; i < len(b)*3/4; i++ {
				b[i] ^= 1
			}
			if err := os.WriteFile(shard, b, 0o600); err != nil {
				t.Fatal(err)
			}
			opt.Epoch = 3
			if err := runAdaptive(ranks, opt, &adaptive{start: 3, until: 3, device: device}); err == nil ||
				!strings.Contains(err.Error(), "corrupt") || strings.Contains(err.Error(), "leaves") {
				t.Errorf("the damaged epoch alone: got %v", err)
			}
			opt.Epoch = 0
			if err := runAdaptive(ranks, opt, &adaptive{start: 2, until: 4, device: device}); err != nil {
				t.Errorf("the epoch before: %v", err)
			}
		})
	}
}
