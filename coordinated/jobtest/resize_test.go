package jobtest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// division is a way to divide the arrays of a program, by the number of ranks.
type division struct {
	name string
	dims []int
	of   func(dims []int, ranks, rank int) coordinated.Array

	grid  func(ranks int) []int // if it is block-cyclic, in such blocks
	block []int
}

var divisions = []division{
	{"rows", []int{13, 4}, func(dims []int, ranks, rank int) coordinated.Array {
		return coordinated.Block(dims, []int{ranks, 1}, rank)
	}, nil, nil},
	{"columns with ghosts", []int{5, 11}, func(dims []int, ranks, rank int) coordinated.Array {
		return coordinated.Block(dims, []int{1, ranks}, rank).Ghosts(2, 1)
	}, nil, nil},
	{"cyclic", []int{29}, func(dims []int, ranks, rank int) coordinated.Array {
		return coordinated.BlockCyclic(dims, []int{ranks}, []int{1}, rank)
	}, func(ranks int) []int { return []int{ranks} }, []int{1}},
	{"block-cyclic", []int{17, 19}, func(dims []int, ranks, rank int) coordinated.Array {
		return coordinated.BlockCyclic(dims, gridOf(ranks), []int{3, 2}, rank)
	}, gridOf, []int{3, 2}},
	{"blocks in three dimensions", []int{6, 7, 5}, func(dims []int, ranks, rank int) coordinated.Array {
		return coordinated.Block(dims, append(gridOf(ranks), 1), rank).Ghosts(1, 2, 1)
	}, nil, nil},
	{"four dimensions", []int{4, 3, 5, 2}, func(dims []int, ranks, rank int) coordinated.Array {
		return coordinated.BlockCyclic(dims, gridOf4(ranks), []int{4, 1, 2, 2}, rank).Ghosts(1, 0, 1, 2)
	}, gridOf4, []int{4, 1, 2, 2}},
	{"variable", []int{40}, func(_ []int, ranks, rank int) coordinated.Array {
		lengths := make([]int, ranks)
		for i := range 40 {
			lengths[i*i%ranks]++
		}
		return coordinated.Variable(lengths, rank)
	}, nil, nil},
	{"several boxes", []int{9, 8}, func(dims []int, ranks, rank int) coordinated.Array {
		a := coordinated.Array{Dims: dims}
		at := 3 // rows, dealt out in turn, each at its own place in memory
		for r := rank; r < dims[0]; r += ranks {
			a.Boxes = append(a.Boxes, coordinated.Box{Start: []int{r, 0}, Count: []int{1, 8}, Offset: at})
			at += 11
		}
		return a
	}, nil, nil},
}

// gridOf returns a grid of two dimensions.
func gridOf(ranks int) []int {
	for p := 2; p*p <= ranks; p++ {
		if ranks%p == 0 {
			return []int{p, ranks / p}
		}
	}
	return []int{1, ranks}
}

func gridOf4(ranks int) []int { return append(append([]int{1}, gridOf(ranks)...), 1) }

// value returns what the element at a place of array i holds after some steps: that of the program of one rank.
func value(i int, point []int64, step int) float64 {
	v := float64(i*1000 + step*7)
	for _, x := range point {
		v = v*31 + float64(x)
	}
	return v
}

// share is one rank's part of an array, in memory or on a device.
type share struct {
	array coordinated.Array
	mem   []float64
	buf   *gpustate.Buffer // nil: mem is the array itself
	q     *gpustate.Queue

	block, grid, place []int // of a block-cyclic array, with the rank's place in the grid
}

// onDevice puts the array into a buffer.
func (s *share) onDevice(dev *gpustate.Device, name string) (err error) {
	if s.q, err = dev.Queue(""); err != nil {
		return err
	}
	if s.buf, err = dev.Buffer(name, 8*len(s.mem)); err != nil {
		return err
	}
	return s.push()
}

func (s *share) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&s.mem[0])), 8*len(s.mem)) }

// push and pull move the memory to the device and back.
func (s *share) push() error {
	if s.buf == nil {
		return nil
	}
	return s.q.Write(s.buf, 0, s.bytes())
}

func (s *share) pull() error {
	if s.buf == nil {
		return nil
	}
	clear(s.mem)
	return s.q.Read(s.buf, 0, s.bytes())
}

// protect protects the array where it lies.
func (s *share) protect(ck *coordinated.Checkpointer, name string) error {
	if s.buf != nil {
		return ck.ProtectGlobal(name, s.array, coordinated.InBuffer[float64](s.buf))
	}
	return ck.ProtectGlobal(name, s.array, &s.mem)
}

func newShare(d *division, ranks, rank int) *share {
	s := &share{array: d.of(d.dims, ranks, rank)}
	s.mem = make([]float64, s.array.Len()+11*len(s.array.Boxes)+3)
	for i := range s.mem {
		s.mem[i] = -1 // ghosts, and what is in no box
	}
	if d.block != nil {
		s.deal(d.grid(ranks), d.block, rank)
	}
	return s
}

// deal says how a block-cyclic array is dealt out.
func (s *share) deal(grid, block []int, rank int) {
	s.grid, s.block, s.place = grid, block, make([]int, len(grid))
	for d := len(grid) - 1; d >= 0; d-- {
		s.place[d] = rank % grid[d]
		rank /= grid[d]
	}
}

// each visits the rank's elements one by one, with their places in memory.
func (s *share) each(visit func(point []int64, at int)) {
	for i := range s.array.Boxes {
		b := &s.array.Boxes[i]
		point, count, stride := make([]int64, len(s.array.Dims)), b.Count, make([]int, len(s.array.Dims))
		if b.Start == nil {
			count = s.array.Local()
		}
		base, next := b.Offset, 1
		for d := len(stride) - 1; d >= 0; d-- {
			low, high := 0, 0
			if b.Low != nil {
				low, high = b.Low[d], b.High[d]
			}
			if b.Start == nil {
				count[d] -= low + high
			}
			stride[d] = next
			base += low * next
			next *= low + count[d] + high
		}
		var walk func(d, at int)
		walk = func(d, at int) {
			if d == len(point) {
				visit(point, at)
				return
			}
			for k := range count[d] {
				if b.Start != nil {
					point[d] = int64(b.Start[d] + k)
				} else { // every grid-th block of the dimension
					n := s.block[d]
					point[d] = int64((k/n*s.grid[d]+s.place[d])*n + k%n)
				}
				walk(d+1, at+k*stride[d])
			}
		}
		walk(0, base)
	}
}

// elastic is a program that works on all divisions. It runs up to a step, and stops after a checkpoint.
type elastic struct {
	until    int
	start    int // step at which it has to continue; 0: a first start
	bad      func(s *share, rank int)
	plain    bool   // it protects a value per rank, too
	device   string // the kind of the device that arrays are on; empty: they are in memory
	whole    bool   // boxes are stored as they are declared; else they are cut wherever they can be
	restored atomic.Int64
}

func (p *elastic) run(opt coordinated.Options) func(*mpiwrap.Comm) error {
	opt.Elastic = true
	return func(world *mpiwrap.Comm) (err error) {
		ctx := context.Background()
		var dev *gpustate.Device
		if p.device != "" {
			if dev, err = gpustate.Open(gpustate.Select{Kind: p.device}); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, dev.Close()) }() // Close may take a checkpoint
		}
		cuts := smallCuts
		if p.whole {
			cuts = layout.Cuts{}
		}
		ck, err := coordinated.Open(onNode(ctx, opt, cuts), world, opt)
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

func (p *elastic) body(ctx context.Context, world *mpiwrap.Comm, ck *coordinated.Checkpointer,
	dev *gpustate.Device) error {
	var shares []*share
	sets := &bags{ranks: world.Size(), rank: world.Rank()}
	step, note := 0, []byte(strings.Repeat("the same everywhere ", 5000))
	err := errors.Join(ck.ProtectReplicated("step", &step), ck.ProtectReplicated("note", &note))
	for i := range divisions {
		s := newShare(&divisions[i], world.Size(), world.Rank())
		if p.bad != nil && i == 3 {
			p.bad(s, world.Rank())
		}
		shares = append(shares, s)
		if dev != nil {
			err = errors.Join(err, s.onDevice(dev, fmt.Sprint("u", i)))
		}
		err = errors.Join(err, s.protect(ck, fmt.Sprint("u", i)))
	}
	err = errors.Join(err, sets.protect(ck))
	own := world.Rank()
	if p.plain {
		err = errors.Join(err, ck.Protect("own", &own))
	}
	if err != nil {
		return err
	}
	if p.start > 0 {
		note = nil
	}
	restored, err := ck.Restore(ctx)
	if err != nil {
		return err
	}
	if restored {
		p.restored.Add(1)
	}
	if restored != (p.start > 0) || step != p.start || len(note) != 100_000 {
		return fmt.Errorf("restored %v, step %d, want step %d; note of %d bytes", restored, step, p.start, len(note))
	}
	if err := sets.check(step); restored && err != nil {
		return err
	}
	for {
		if err := p.check(shares, step); err != nil || step == p.until {
			return err
		}
		step++
		sets.fill(step)
		for i, s := range shares {
			s.each(func(point []int64, at int) { s.mem[at] = value(i, point, step) })
			if err := s.push(); err != nil {
				return err
			}
		}
		if step == p.until && world.Rank() == step%world.Size() {
			if err := ck.RequestStop(ctx); err != nil {
				return err
			}
		}
		if step == p.until {
			if err := world.Barrier(); err != nil {
				return err
			}
		}
		if err := ck.Point(ctx); err != nil {
			return err
		}
		if step == p.until {
			if err := jobtest.UntilTaken(ctx, ck); err != nil {
				return err
			}
		}
	}
}

// check compares what a rank has with the program of one rank: every element, and what is no element.
func (p *elastic) check(shares []*share, step int) error {
	for i, s := range shares {
		if err := s.pull(); err != nil {
			return err
		}
		want := make([]float64, len(s.mem))
		for k := range want {
			want[k] = -1
		}
		if step > 0 {
			s.each(func(point []int64, at int) { want[at] = value(i, point, step) })
		} else {
			s.each(func(_ []int64, at int) { want[at] = -1 })
		}
		if !slices.Equal(s.mem, want) {
			return fmt.Errorf("%s at step %d: got %v, want %v", divisions[i].name, step, s.mem, want)
		}
	}
	return nil
}

func runElastic(t *testing.T, ranks int, opt coordinated.Options, p *elastic) error {
	t.Helper()
	err := mpitest.NewWorld(ranks, mpitest.Options{Seed: uint64(ranks)}).Run(p.run(opt))
	if errors.Is(err, coordinated.ErrStop) {
		err = nil
	}
	return err
}

// resizeAll has TestResize take all pairs of numbers of ranks up to eight; without it six of them have one other
// number.
var resizeAll = flag.Bool("resize-all", false, "TestResize takes all pairs; make soak does")

// TestResize stops a program on P ranks and continues it on Q, then on P again: every element of every division is
// that of the program of one rank, and nothing else in memory changes. Every other job has a local directory alone.
func TestResize(t *testing.T) {
	for p := 1; p <= 8; p++ {
		for q := 1; q <= 8; q++ {
			if !*resizeAll && (q == p || q != 1+(3*p+1)%8) || testing.Short() && p%3 > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%d to %d", p, q), func(t *testing.T) {
				opt := jobtest.Options(t)
				if opt.Keep = 2; (p+q)%2 > 0 {
					opt.Global = ""
				}
				for i, ranks := range []int{p, q, p} {
					run := &elastic{until: 2 * (i + 1), start: 2 * i, whole: (i+p)%3 == 0}
					if (i+p+q/2)%2 > 0 {
						run.device = "fake"
					}
					if err := runElastic(t, ranks, opt, run); err != nil {
						t.Fatalf("start %d on %d ranks: %v", i, ranks, err)
					}
					if want := int64(min(i, 1) * ranks); run.restored.Load() != want {
						t.Fatalf("start %d: %d ranks restored, want %d", i, run.restored.Load(), want)
					}
				}
			})
		}
	}
}

// firstElastic writes an epoch on two ranks.
func firstElastic(t *testing.T, opt coordinated.Options, p *elastic) error {
	t.Helper()
	p.until = 2
	return runElastic(t, 2, opt, p)
}

// TestResizeRefused: what stands in the way of another number of ranks is named; the same number continues.
func TestResizeRefused(t *testing.T) {
	testOptions := func(t *testing.T) coordinated.Options {
		o := jobtest.Options(t)
		o.OnLost = func(*coordinated.LostError) {}
		return o
	}
	t.Run("per rank in the epoch", func(t *testing.T) {
		opt := testOptions(t)
		if err := firstElastic(t, opt, &elastic{plain: true}); err != nil {
			t.Fatal(err)
		}
		err := runElastic(t, 3, opt, &elastic{until: 4, start: 2})
		for _, part := range []string{"written by 2 ranks", "cannot be restored by 3", `"own" is protected per rank`,
			"this job has another number of ranks", "use ProtectGlobal, "} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("got %v, want %q in it", err, part)
			}
		}
		for _, part := range []string{"hf_", "start the program that wrote them"} {
			if err != nil && strings.Contains(err.Error(), part) {
				t.Errorf("got %v, want no %q in it", err, part)
			}
		}
		if err := runElastic(t, 2, opt, &elastic{until: 4, start: 2, plain: true}); err != nil {
			t.Errorf("the same number of ranks: %v", err)
		}
	})
	t.Run("per rank now", func(t *testing.T) {
		opt := testOptions(t)
		if err := firstElastic(t, opt, &elastic{}); err != nil {
			t.Fatal(err)
		}
		err := runElastic(t, 1, opt, &elastic{until: 4, start: 2, plain: true})
		if err == nil || !strings.Contains(err.Error(), `"own" is protected per rank`) {
			t.Errorf("got %v, want the name", err)
		}
	})
	t.Run("not elastic", func(t *testing.T) {
		opt := testOptions(t)
		if err := firstElastic(t, opt, &elastic{}); err != nil {
			t.Fatal(err)
		}
		err := mpitest.NewWorld(3, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
			ck, err := coordinated.Open(context.Background(), world, opt)
			if err == nil {
				ck.Abort(err)
			}
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "holds checkpoints of 2 ranks, this job has 3") ||
			!strings.Contains(err.Error(), "Options.Elastic") || strings.Contains(err.Error(), "hf_") {
			t.Errorf("got %v, want both numbers and the remedy", err)
		}
	})
}

// TestWrongSharesFail: Restore fails on all ranks where these leave a hole, own elements twice or describe an array in
// different ways, also on a first start; the error names the array, the box and the ranks.
func TestWrongSharesFail(t *testing.T) {
	for name, c := range map[string]struct {
		bad  func(s *share, rank int)
		want string
	}{
		"hole": {func(s *share, rank int) {
			if rank == 1 {
				s.array.Boxes = nil
			}
		}, `array "u3" has a hole: no rank owns [0:17,`},
		"twice": {func(s *share, rank int) {
			if rank == 1 {
				s.array.Boxes = []coordinated.Box{{Start: []int{0, 0}, Count: []int{17, 19}}}
				s.mem = make([]float64, 17*19)
			}
		}, `array "u3" overlaps: rank 0 and rank 1 both own [0:`},
		"dimensions": {func(s *share, rank int) {
			if rank == 1 {
				s.array.Dims = []int{17, 20}
			}
		}, `array "u3": dimensions [17 19] at rank 0, but [17 20] at rank 1`},
		"not declared": {func(s *share, rank int) {
			if rank == 1 {
				s.array.Dims = nil
			}
		}, `array "u3" at rank 1: is not declared there`},
	} {
		t.Run(name, func(t *testing.T) {
			opt := jobtest.Options(t)
			opt.Elastic = true
			err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
				ctx := context.Background()
				ck, err := coordinated.Open(withCuts(ctx, smallCuts), world, opt)
				if err != nil {
					return err
				}
				s := newShare(&divisions[3], 2, world.Rank())
				if c.bad(s, world.Rank()); s.array.Dims != nil {
					err = ck.ProtectGlobal("u3", s.array, &s.mem)
				}
				if err != nil {
					return err
				}
				if _, err = ck.Restore(ctx); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("rank %d: got %T %v, want %q", world.Rank(), err, err, c.want)
				}
				return ck.Close()
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestReplicasAreCompared: a replicated value that differs fails the checkpoint.
func TestReplicasAreCompared(t *testing.T) {
	opt := jobtest.Options(t)
	opt.Elastic = true
	err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, err := coordinated.Open(ctx, world, opt)
		if err != nil {
			return err
		}
		x := world.Rank()
		if err := ck.ProtectReplicated("x", &x); err != nil {
			return err
		}
		if _, err := ck.Restore(ctx); err != nil {
			return err
		}
		if err := errors.Join(ck.Request(ctx), jobtest.UntilTaken(ctx, ck), ck.Close()); err != nil {
			return err
		}
		for _, e := range ck.Stats().Epochs {
			if e.Err == nil || !strings.Contains(e.Err.Error(), `array "x": replicated value`) {
				t.Errorf("rank %d, epoch %d: got %v", world.Rank(), e.Epoch, e.Err)
			}
		}
		if len(ck.Stats().Epochs) == 0 {
			t.Errorf("rank %d: no checkpoint was taken", world.Rank())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
