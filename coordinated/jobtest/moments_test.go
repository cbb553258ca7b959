package jobtest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	storetest "github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// The every-moment test: a generated program runs on simulated ranks; for each
// library call that it makes, in turn, a checkpoint is asked for at that call;
// the program stops or goes on, is restarted from the epoch and must end as the
// uncut run did.

var (
	pairs     = flag.Int("pairs", 600, "(program, moment) pairs to test; make soak takes more")
	pairsSeed = flag.Uint64("pairs-seed", 0, "first seed of the generated programs")
	onlyShape = flag.String("pairs-shape", "", "test only this shape")
	onlyAt    = flag.Int("pairs-at", 0, "test only the moment of this call, counted from 1")
)

// errReturns is what a rank returns early by.
var errReturns = errors.New("this rank gives up")

// secondAsk is how many calls after the first request a program that goes on gets another.
const secondAsk = 9

var errKilled = errors.New("killed by the test")

// mem is one rank's protected state.
type mem struct {
	Step  int64
	Phase int64
	Acc   []float64
	Log   []int64
}

// sketch is a generated program: body runs one rank from its state to the end.
type sketch struct {
	name  string
	ranks int
	body  func(p *process) error
	// setup makes and protects what a shape needs besides its mem.
	setup func(p *process) error
	// same compares the ranks' final states with the uncut run's; nil means that
	// they must be equal.
	same func(got, want []mem) error
	// mostRetracted is how many of its needs a rank may take back, 0 for any number: one
	// that takes its need back while it only computes makes others wait for a lucky look.
	mostRetracted int64
	// threads says that a rank's goroutines call at once.
	threads bool
}

// process is one rank of a sketch.
type process struct {
	world *mpiwrap.Comm
	ck    *coordinated.Checkpointer
	rng   uint64 // seed of the program, the same on all ranks and restarts
	mem
	halo [2][]float64 // of the shape with pending receives
	reqs [2]*mpiwrap.Request
	win  *mpiwrap.Win[int64] // of the shape with a window
	on   *onDevice           // of the shapes with devices
}

func (p *process) point() error { return p.ck.Point(context.Background()) }

// jobRun is one start of a sketch.
type jobRun struct {
	seed uint64
	opt  inMemory
	at   int  // call at which to ask, 0 = never
	goOn bool // ask for a checkpoint that the program continues after, and soon for another

	restored *atomic.Uint64 // takes the epoch that rank 0 continued from; may be nil

	returnAt int // call at which its rank returns by an error, 0 = never

	// killRank dies when it comes to the step killAt of a checkpoint.
	killRank int
	killAt   string
	killed   *atomic.Bool // set when it has
}

// start runs a sketch once; it returns the final states and the number of
// calls, and whether a checkpoint was taken.
func (s *sketch) start(j jobRun) (states []mem, calls int, cut bool, err error) {
	states = make([]mem, s.ranks)
	checkpointers := make([]atomic.Pointer[coordinated.Checkpointer], s.ranks)
	parts := make([]atomic.Pointer[connect.Inside], s.ranks)
	var last atomic.Int64
	net := connecttest.NewNet(s.ranks)
	here := connect.Seam{Plane: net.Plane, QuietPerRank: j.opt.quietPerRank, Phase: j.opt.phase}
	var w *mpitest.World
	if j.returnAt > 0 {
		j.opt.OnLost = func(e *coordinated.LostError) { w.Abort(e) }
	}
	if j.killAt != "" {
		var once sync.Once
		here.Phase = func(rank int, name string) {
			if rank == j.killRank && name == j.killAt {
				once.Do(func() {
					j.killed.Store(true)
					net.Kill(rank)
					w.Kill(rank)
					parts[rank].Load().Stop(errKilled)
				})
			}
		}
		j.opt.OnLost = func(e *coordinated.LostError) { w.Abort(e) }
	}
	w = mpitest.NewWorld(s.ranks, mpitest.Options{Seed: j.seed, Delay: 0.2, Concurrent: s.threads,
		OnCall: func(c mpitest.Call) {
			ck := checkpointers[c.Rank].Load()
			if ck == nil {
				return // still in Open
			}
			n := last.Add(1)
			if j.returnAt > 0 && n == int64(j.returnAt) {
				panic(errReturns) // the only way out of a call
			}
			if j.at == 0 || n != int64(j.at) && (!j.goOn || n != int64(j.at)+secondAsk) {
				return
			}
			ask := ck.RequestStop
			if j.goOn {
				ask = ck.Request
			}
			_ = ask(context.Background()) // closed: the program has ended before the moment
		}})
	var anyCut atomic.Bool
	err = w.Run(func(world *mpiwrap.Comm) error {
		mine := here
		mine.Opened = func(p connect.Inside) { parts[world.Rank()].Store(&p) }
		ctx := storetest.WithPools(vfs.With(connect.WithSeam(context.Background(), mine), j.opt.files))
		ck, err := coordinated.Open(ctx, world, j.opt.Options)
		if err != nil {
			return err
		}
		checkpointers[world.Rank()].Store(ck)
		p := &process{world: world, ck: ck, rng: j.seed}
		err = s.rankOrReturn(p, &states[world.Rank()])
		if errors.Is(err, errReturns) {
			return errors.Join(err, ck.Close())
		}
		if errors.Is(err, coordinated.ErrStop) {
			err = nil
		}
		switch {
		case errors.Is(err, errKilled) || errors.Is(err, mpitest.ErrKilled):
			return nil // this is the dead one
		case err != nil:
			ck.Abort(err)
			w.Abort(err)
			return err
		}
		if j.restored != nil && world.Rank() == 0 {
			j.restored.Store(uint64(ck.Stats().Restore.Epoch))
		}
		err = ck.Close()
		for _, es := range ck.Stats().Epochs {
			anyCut.Store(true)
			var late *coordinated.TimeoutError
			if errors.As(es.Err, &late) {
				err = errors.Join(err, late)
			}
		}
		return err
	})
	for r := range net.Retracted {
		if n := net.Retracted[r].Load(); s.mostRetracted > 0 && n > s.mostRetracted {
			err = errors.Join(err, fmt.Errorf("rank %d has taken %d needs back, at most %d can have ended", r, n,
				s.mostRetracted))
		}
	}
	return states, int(last.Load()), anyCut.Load(), err
}

// rankOrReturn is rank, with an early return by an error.
func (s *sketch) rankOrReturn(p *process, final *mem) (err error) {
	defer func() {
		switch r := recover(); r {
		case nil:
		case errReturns:
			err = errReturns
		default:
			panic(r)
		}
	}()
	return s.rank(p, final)
}

func (s *sketch) rank(p *process, final *mem) error {
	p.Acc = []float64{float64(p.world.Rank()) + 0.5}
	err := errors.Join(p.ck.Protect("step", &p.Step), p.ck.Protect("phase", &p.Phase), p.ck.Protect("acc", &p.Acc),
		p.ck.Protect("log", &p.Log))
	if err == nil && s.setup != nil {
		err = s.setup(p)
	}
	if err != nil {
		return err
	}
	if _, err := p.ck.Restore(context.Background()); err != nil {
		return err
	}
	err = s.body(p)
	*final = p.mem
	return err
}

// sameStates demands equality.
func sameStates(got, want []mem) error {
	for r := range want {
		if got[r].Step != want[r].Step || !slices.Equal(got[r].Acc, want[r].Acc) ||
			!slices.Equal(got[r].Log, want[r].Log) {
			return fmt.Errorf("rank %d ended with %+v, the uncut run with %+v", r, got[r], want[r])
		}
	}
	return nil
}

// inMemory is how a job is opened.
type inMemory struct {
	coordinated.Options
	files        *crashfs.FS
	quietPerRank bool
	phase        func(rank int, name string) // may be nil
}

// memOptions are options on a file system in memory.
func memOptions() (inMemory, error) {
	fs := crashfs.New()
	if err := fs.Mkdir("/local"); err != nil {
		return inMemory{}, err
	}
	return inMemory{files: fs, Options: coordinated.Options{Job: "moments", Local: "/local",
		CheckpointSignals: []os.Signal{},
		StopSignals:       []os.Signal{},
		Fanout:            2, CutTimeout: 2 * time.Minute, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnLost: func(*coordinated.LostError) {}}}, nil
}

// moment tests one pair.
func (s *sketch) moment(seed uint64, at int, want []mem) error {
	_, err := s.momentCut(seed, at, want)
	return err
}

// momentCut is moment that reports whether a checkpoint was taken.
func (s *sketch) momentCut(seed uint64, at int, want []mem) (cut bool, err error) {
	opt, err := memOptions()
	if err != nil {
		return false, err
	}
	same := s.same
	if same == nil {
		same = sameStates
	}
	// Every other moment the program continues after the checkpoint, so that what
	// the ranks do behind the cut can do harm, and is restarted from it as if it
	// had been killed later.
	goOn := at%2 == 0
	states, _, taken, err := s.start(jobRun{seed: seed, opt: opt, at: at, goOn: goOn})
	if err != nil {
		return cut, fmt.Errorf("cut: %w", err)
	}
	cut = taken
	if goOn {
		if err := same(states, want); err != nil {
			return cut, fmt.Errorf("the run that continued: %w", err)
		}
	}
	if cut {
		var from atomic.Uint64
		back := at%4 == 0 && s.spoil(opt, at)
		states, _, _, err = s.start(jobRun{seed: seed, opt: opt, restored: &from})
		if err != nil {
			return cut, fmt.Errorf("restart: %w", err)
		}
		if back && from.Load() != 1 {
			return cut, fmt.Errorf("restored epoch %d; epoch 2 is damaged", from.Load())
		}
		if back {
			wentBack.Add(1)
		}
	}
	return cut, same(states, want)
}

// firstChunk is where the first section of a shard has bytes.
const firstChunk = 4096 + 8

// wentBack counts the restarts that had to go back to an older epoch.
var wentBack atomic.Int64

func shardOf(epoch, rank int) string {
	return fmt.Sprintf("/local/epoch-%010d/rank-%06d.shard", epoch, rank)
}

// spoil damages a rank's shard of the second epoch, if there are two: its index, so that
// no rank tries it, or the bytes that the ranks load.
func (s *sketch) spoil(opt inMemory, at int) bool {
	fs, rank := opt.files, at/4%s.ranks
	if _, err := fs.Stat(shardOf(1, rank)); err != nil {
		return false
	}
	st, err := fs.Stat(shardOf(2, rank))
	place := st.Size - 20
	if at%8 == 0 {
		place = firstChunk
	}
	return err == nil && fs.Flip(shardOf(2, rank), place, 0x40) == nil
}

// TestEveryMoment runs pairs in parallel until there are enough.
func TestEveryMoment(t *testing.T) {
	if testing.Short() {
		*pairs = min(*pairs, 40)
	}
	work := make(chan func())
	var wg sync.WaitGroup
	for range 8 * runtime.GOMAXPROCS(0) { // most of a job is waiting for a tick or a message
		wg.Go(func() {
			for f := range work {
				f()
			}
		})
	}
	var failed, done atomic.Int64
	begin := time.Now()
	for seed := *pairsSeed; done.Load() < int64(*pairs) && failed.Load() == 0; seed++ {
		rng := rand.New(rand.NewPCG(seed, 5))
		for _, s := range sketches(rng) {
			if *onlyShape != "" && s.name != *onlyShape {
				continue
			}
			opt, err := memOptions()
			if err != nil {
				t.Fatal(err)
			}
			want, calls, _, err := s.start(jobRun{seed: seed, opt: opt})
			if err != nil {
				t.Fatalf("%s, seed %d, uncut: %v", s.name, seed, err)
			}
			for at := 1; at <= calls; at++ {
				if *onlyAt != 0 && at != *onlyAt || *onlyAt == 0 && testing.Short() && at%17 != 0 {
					continue
				}
				work <- func() {
					if err := s.moment(seed, at, want); err != nil && failed.Add(1) == 1 {
						t.Errorf("%s on %d ranks: %v\nreplay: go test ./coordinated/jobtest -run TestEveryMoment "+
							"-args -pairs=1 -pairs-seed=%d -pairs-shape=%q -pairs-at=%d",
							s.name, s.ranks, err, seed, s.name, at)
					}
					done.Add(1)
				}
			}
		}
	}
	close(work)
	wg.Wait()
	t.Logf("%d pairs in %v, %d went back to an older epoch", done.Load(), time.Since(begin).Round(time.Millisecond),
		wentBack.Load())
	if *onlyShape == "" && wentBack.Load() < done.Load()/1000 { // how many is up to the scheduler
		t.Errorf("only %d of %d pairs went back to an older epoch", wentBack.Load(), done.Load())
	}
}
