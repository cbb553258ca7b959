package jobtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// An underway begins something before a Point and ends it behind the Point; what the ring says is passed on.
type underway func(world *mpiwrap.Comm, out, in []float64) (end func() error, err error)

// neighbours of a rank in the ring.
func neighbours(world *mpiwrap.Comm) (next, last int) {
	n := world.Size()
	return (world.Rank() + 1) % n, (world.Rank() + n - 1) % n
}

// waitFor is the end of something that a request stands for.
func waitFor(r *mpiwrap.Request) error {
	_, err := r.Wait()
	return err
}

// underways are all that keeps a cut from being quiet.
var underways = map[string]underway{
	"a message": func(world *mpiwrap.Comm, out, in []float64) (func() error, error) {
		next, last := neighbours(world)
		err := mpiwrap.Send(world, out, next, 7)
		return func() error { _, err := mpiwrap.Recv(world, in, last, 7); return err }, err
	},
	"a receive without a message": func(world *mpiwrap.Comm, out, in []float64) (func() error, error) {
		next, last := neighbours(world)
		r, err := mpiwrap.Irecv(world, in, last, 7)
		return func() error { return errors.Join(mpiwrap.Send(world, out, next, 7), waitFor(r)) }, err
	},
	"a receive not waited for": func(world *mpiwrap.Comm, out, in []float64) (func() error, error) {
		next, last := neighbours(world)
		r, err := mpiwrap.Irecv(world, in, last, 7)
		return func() error { return waitFor(r) }, errors.Join(err, mpiwrap.Send(world, out, next, 7))
	},
	"a probed message": func(world *mpiwrap.Comm, out, in []float64) (func() error, error) {
		next, last := neighbours(world)
		if err := mpiwrap.Send(world, out, next, 7); err != nil {
			return nil, err
		}
		m, err := world.Mprobe(last, 7)
		return func() error { _, err := mpiwrap.Mrecv(m, in); return err }, err
	},
	"a non-blocking collective": func(world *mpiwrap.Comm, out, in []float64) (func() error, error) {
		r, err := mpiwrap.Iallreduce(world, in, out, mpiwrap.Max)
		return func() error { return waitFor(r) }, err
	},
}

// halves is a program that any number of ranks continues. Until busy steps have passed something is under way at each
// of its Points; then nothing is.
type halves struct {
	under underway
	busy  int
	until int  // steps; 0: until there is a checkpoint
	final bool // the checkpoint is a final one
	askAt int  // step at which rank 0 asks for it
	leave bool // what is under way never ends: the program closes with it, and rank 0 asks before

	mu       sync.Mutex
	restored int // step that it continued from
	epochs   []coordinated.EpochStats
}

func (p *halves) run(world *mpiwrap.Comm, opt coordinated.Options) error {
	ctx := context.Background()
	ck, err := coordinated.Open(ctx, world, opt)
	if err != nil {
		return err
	}
	if err = p.body(ctx, world, ck); err != nil && !errors.Is(err, coordinated.ErrStop) {
		ck.Abort(err)
		return err
	}
	err = ck.Close()
	if world.Rank() == 0 {
		p.mu.Lock()
		p.epochs = ck.Stats().Epochs
		p.mu.Unlock()
	}
	return err
}

func (p *halves) body(ctx context.Context, world *mpiwrap.Comm, ck *coordinated.Checkpointer) error {
	step := 0
	cells := coordinated.Block([]int{12}, []int{world.Size()}, world.Rank())
	u := make([]float64, cells.Len())
	if err := errors.Join(ck.ProtectReplicated("step", &step), ck.ProtectGlobal("u", cells, &u)); err != nil {
		return err
	}
	restored, err := ck.Restore(ctx)
	if err != nil {
		return err
	}
	first := cells.Boxes[0].Start[0]
	for i := range u {
		if u[i] != float64(step*(first+i)) {
			return fmt.Errorf("element %d is %v at step %d", i, u[i], step)
		}
	}
	if restored {
		p.mu.Lock()
		p.restored = step
		p.mu.Unlock()
		return nil
	}
	for ; p.until == 0 || step < p.until; step++ {
		if world.Rank() == 0 && step == p.askAt {
			ask := ck.Request
			if p.final {
				ask = ck.RequestStop
			}
			if err := ask(ctx); err != nil {
				return err
			}
		}
		if err := p.step(ctx, world, ck, step); err != nil {
			return err
		}
		for i := range u {
			u[i] += float64(first + i)
		}
		if done, err := p.over(world, ck, step); done || err != nil {
			return err
		}
	}
	if !p.leave {
		return nil
	}
	// Nothing has held the ranks together: they must be at the same step when the checkpoint is asked for.
	if err := world.Barrier(); err != nil {
		return err
	}
	if world.Rank() == 0 {
		return ck.Request(ctx)
	}
	return jobtest.UntilTaken(ctx, ck) // rank 0 is in Close, but not all ranks are
}

// step is a Point, with something under way or not.
func (p *halves) step(ctx context.Context, world *mpiwrap.Comm, ck *coordinated.Checkpointer, step int) (err error) {
	in, end := []float64{0}, func() error { return nil }
	if busy := step < p.busy; busy {
		if end, err = p.under(world, []float64{float64(step)}, in); err != nil {
			return err
		}
		defer func() {
			if err == nil && !p.leave && in[0] != float64(step) {
				err = fmt.Errorf("got %v at step %d", in[0], step)
			}
		}()
	}
	if err := ck.Point(ctx); err != nil || p.leave {
		return err
	}
	return end()
}

// over says on all ranks alike whether there is a checkpoint.
func (p *halves) over(world *mpiwrap.Comm, ck *coordinated.Checkpointer, step int) (bool, error) {
	if p.until > 0 {
		return false, nil
	}
	mine, all := []float64{0}, []float64{0}
	if es := ck.Stats().Epochs; len(es) > 0 && es[0].Durable[storage.LevelGlobal] > 0 {
		mine[0] = 1
	}
	err := mpiwrap.Allreduce(world, all, mine, mpiwrap.Max)
	return all[0] > 0, err
}

// errorLog hears what is logged; a run that puts checkpoints off logs no error.
type errorLog struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *errorLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *errorLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.String(), text)
}

// committedEpochs lists the epochs that are there, by level.
func committedEpochs(t *testing.T, opt *coordinated.Options) []checkpoints.EpochInfo {
	t.Helper()
	v, err := checkpoints.Open(t.Context(), opt.Local, opt.Global)
	if err != nil {
		t.Fatal(err)
	}
	list, err := v.Epochs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list, func(info checkpoints.EpochInfo) bool { return !info.Committed })
}

// counts returns why other numbers of ranks cannot restore an epoch; its text is empty if they can.
func counts(t *testing.T, opt *coordinated.Options, e storage.Epoch) string {
	t.Helper()
	list := committedEpochs(t, opt)
	i := slices.IndexFunc(list, func(info checkpoints.EpochInfo) bool { return info.Epoch == e })
	if i < 0 {
		return "no such epoch"
	}
	c := list[i].Counts()
	if c.Any() {
		return ""
	}
	return fmt.Sprintf("%+v", c)
}

// TestQuiet: while something is under way at the Points, of any kind, a checkpoint waits, without an error, and other
// numbers of ranks can restore what it is then. Without the option they cannot, or there is no checkpoint.
func TestQuiet(t *testing.T) {
	for name, under := range underways {
		for _, final := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, final %v", name, final), func(t *testing.T) {
				log := &errorLog{}
				opt := jobtest.Options(t)
				opt.Elastic, opt.Quiet, opt.CutTimeout, opt.Events = true, time.Hour, 24*time.Hour, "off"
				opt.Logger = slog.New(slog.NewTextHandler(log, nil))
				p := &halves{under: under, busy: 40, askAt: 3, final: final}
				if err := mpitest.NewWorld(3, mpitest.Options{Seed: 1, Delay: 0.2}).Run(func(w *mpiwrap.Comm) error {
					return p.run(w, opt)
				}); err != nil {
					t.Fatal(err)
				}
				if len(p.epochs) != 1 || p.epochs[0].Err != nil || p.epochs[0].PutOff == 0 ||
					p.epochs[0].Stopped != final {
					t.Fatalf("got epochs %+v, want one that was put off, a final one %v", p.epochs, final)
				}
				if why := counts(t, &opt, p.epochs[0].Epoch); why != "" {
					t.Errorf("other numbers of ranks cannot restore it: %s", why)
				}
				if n := log.count("level=ERROR") + log.count("level=WARN"); n > 0 {
					t.Errorf("%d errors and warnings: %s", n, log)
				}
				if n := log.count("the checkpoint waits"); n != 1 {
					t.Errorf("it says %d times that it waits, want once", n)
				}
				q := &halves{}
				if err := mpitest.NewWorld(2, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
					return q.run(w, opt)
				}); err != nil || q.restored < p.busy {
					t.Errorf("on 2 ranks: from step %d, %v; want one from %d on", q.restored, err, p.busy)
				}
			})
		}
	}
}

// TestQuietNever: where messages are always in flight, the checkpoint is taken as it is when the time is up, final or
// not, and the log says so once.
func TestQuietNever(t *testing.T) {
	for _, final := range []bool{false, true} {
		t.Run(fmt.Sprintf("final %v", final), func(t *testing.T) {
			log := &errorLog{}
			opt := jobtest.Options(t)
			opt.Elastic, opt.Quiet = true, 50*time.Millisecond
			opt.Logger = slog.New(slog.NewTextHandler(log, nil))
			p := &halves{under: underways["a message"], busy: 1 << 30, askAt: 3, final: final}
			if err := mpitest.NewWorld(3, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
				return p.run(w, opt)
			}); err != nil {
				t.Fatal(err)
			}
			if len(p.epochs) != 1 || p.epochs[0].Err != nil || !final && p.epochs[0].PutOff == 0 {
				t.Fatalf("got epochs %+v, want one", p.epochs)
			}
			if why := counts(t, &opt, p.epochs[0].Epoch); !strings.Contains(why, "NotQuiet:[0 1 2]") {
				t.Errorf("got %q, want messages in flight", why)
			}
			if n := log.count("messages were in flight at every cut"); n != min(p.epochs[0].PutOff, 1) {
				t.Errorf("it says %d times that messages were in flight: %s", n, log)
			}
		})
	}
}

// TestQuietAtClose: a program that closes with messages that are never received does not wait for them.
func TestQuietAtClose(t *testing.T) {
	opt := jobtest.Options(t)
	opt.Elastic, opt.Quiet = true, time.Hour
	p := &halves{under: underways["a message"], busy: 8, until: 8, askAt: -1, leave: true}
	if err := mpitest.NewWorld(2, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		return p.run(w, opt)
	}); err != nil {
		t.Fatal(err)
	}
	if n := len(p.epochs); n != 1 || p.epochs[0].Err != nil {
		t.Errorf("got %d epochs, want one: %+v", n, p.epochs)
	}
}

// TestQuietPerRank: the option has no effect where epochs are tied to their number of ranks anyway.
func TestQuietPerRank(t *testing.T) {
	log := &errorLog{}
	opt := jobtest.Options(t)
	opt.Elastic, opt.Quiet = true, time.Hour
	opt.Logger = slog.New(slog.NewTextHandler(log, nil))
	p := &ring{Steps: 40000, Asker: 1, AskAt: 10, Stop: true}
	if err := mpitest.NewWorld(3, mpitest.Options{Seed: 1}).Run(p.Run(opt)); !errors.Is(err, coordinated.ErrStop) {
		t.Fatal(err)
	}
	if p.Cuts.Load() != 3 || log.count("quiet has no effect") != 1 || log.count("the checkpoint waits") > 0 {
		t.Errorf("%d cuts, want one at each rank; %s", p.Cuts.Load(), log)
	}
}

// TestQuietLosesNothing: cuts that are put off change nothing of what programs of all kinds compute, at whatever
// moment a checkpoint is asked for, and a restart from the one that is taken in the end ends as the undisturbed run.
func TestQuietLosesNothing(t *testing.T) {
	put := 0
	for _, s := range sketches(rand.New(rand.NewPCG(5, 5))) {
		same := s.same
		if same == nil {
			same = sameStates
		}
		opt, err := memOptions()
		if err != nil {
			t.Fatal(err)
		}
		want, calls, _, err := s.start(jobRun{seed: 5, opt: opt})
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		for part := range 4 {
			if opt, err = memOptions(); err != nil {
				t.Fatal(err)
			}
			var tries atomic.Int64
			opt.Quiet, opt.quietPerRank = 20*time.Millisecond, true
			opt.phase = func(_ int, name string) {
				if name == "put off" {
					tries.Add(1)
				}
			}
			got, _, _, err := s.start(jobRun{seed: 5, opt: opt, at: 1 + calls*part/4, goOn: part%2 == 0})
			if err == nil && part%2 == 0 {
				err = same(got, want)
			}
			if err == nil {
				opt.phase = nil
				if got, _, _, err = s.start(jobRun{seed: 5, opt: opt}); err == nil {
					err = same(got, want)
				}
			}
			if err != nil {
				t.Errorf("%s, asked at call %d of %d, %d cuts put off: %v", s.name, 1+calls*part/4, calls, tries.Load(),
					err)
			}
			put += int(tries.Load())
		}
	}
	if put == 0 {
		t.Error("no cut was put off")
	}
}

// TestQuietKill kills each rank while cuts are put off. The others notice, and a restart ends as the undisturbed run.
func TestQuietKill(t *testing.T) {
	quiet := func(o *inMemory) { o.Quiet, o.quietPerRank = time.Second, true }
	for _, s := range sketches(rand.New(rand.NewPCG(3, 3))) {
		if s.name != "pending" && s.name != "plain" {
			continue
		}
		opt, err := memOptions()
		if err != nil {
			t.Fatal(err)
		}
		want, calls, _, err := s.start(jobRun{seed: 3, opt: opt})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []string{"put off", "put", "voted", "armed"} {
			kills := 0
			for rank := range s.ranks {
				dead, err := s.killWith(quiet, step, rank, calls/3, want)
				if err != nil {
					t.Errorf("%s: rank %d killed at step %q: %v", s.name, rank, step, err)
				}
				if dead {
					kills++
				}
			}
			if kills == 0 {
				t.Errorf("%s: nobody was killed at step %q", s.name, step)
			}
		}
	}
}

// TestQuietSaysDrain: the facts that ranks exchange at the end of a drain.
func TestQuietSaysDrain(t *testing.T) {
	for _, inFlight := range []bool{false, true} {
		for _, prefers := range []int{-1, 0, 2} {
			err := mpitest.NewWorld(3, mpitest.Options{Seed: 1}).Run(func(world *mpiwrap.Comm) error {
				if inFlight && world.Rank() == 1 {
					if err := mpiwrap.Send(world, []float64{1}, 2, 7); err != nil {
						return err
					}
				}
				e := world.Endpoint()
				e.PreferQuiet(world.Rank() == prefers)
				st, err := e.Drain(context.Background())
				if want := inFlight && prefers >= 0; err == nil && (st.InFlight != inFlight || st.PutOff != want) {
					err = fmt.Errorf("rank %d got %+v", world.Rank(), st)
				}
				if inFlight && world.Rank() == 2 {
					_, rerr := mpiwrap.Recv(world, []float64{0}, 1, 7)
					err = errors.Join(err, rerr)
				}
				return err
			})
			if err != nil {
				t.Errorf("in flight %v, rank %d prefers none: %v", inFlight, prefers, err)
			}
		}
	}
}

// TestQuietEvents: the event log has each cut that is put off, at every rank.
func TestQuietEvents(t *testing.T) {
	opt := jobtest.Options(t)
	opt.Elastic, opt.Quiet = true, time.Hour
	p := &halves{under: underways["a message"], busy: 20, askAt: 3}
	if err := mpitest.NewWorld(2, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		return p.run(w, opt)
	}); err != nil {
		t.Fatal(err)
	}
	n, logs := 0, filepath.Join(opt.Global, events.DirName)
	if err := filepath.WalkDir(logs, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		n += strings.Count(string(b), `"ev":"putoff"`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := 2 * p.epochs[0].PutOff; n != want || n == 0 {
		t.Errorf("got %d events, want %d", n, want)
	}
}
