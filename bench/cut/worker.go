package cut

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// Setup shapes one measured program.
type Setup struct {
	Dir     string
	Epochs  int
	Compute time.Duration
}

// Work is one rank of the measured program: a ring with a reduction in each
// iteration, and requests from random ranks at random moments. Rank 0 prints
// its figures.
func Work(ctx context.Context, o Setup, _ io.Reader, out io.Writer) error {
	world, err := mpiwrap.Init(mpiwrap.Options{})
	if err != nil {
		return err
	}
	ck, err := coordinated.Open(ctx, world, coordinated.Options{Job: "bench-cut", Local: o.Dir, Keep: 2,
		CheckpointSignals: []os.Signal{}, StopSignals: []os.Signal{},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return err
	}
	w := &worker{o: o, world: world, ck: ck, field: make([]float64, 1<<17)}
	if err := w.run(ctx); err != nil {
		ck.Abort(err)
		return err
	}
	if world.Rank() == 0 {
		err = w.print(out)
	}
	return errors.Join(err, ck.Close(), mpiwrap.Finalize())
}

type worker struct {
	o         Setup
	world     *mpiwrap.Comm
	ck        *coordinated.Checkpointer
	field     []float64
	iteration []float64
}

// warmup is how many iterations are timed with nothing asked.
const warmup = 200

func (w *worker) run(ctx context.Context) error {
	if err := w.ck.Protect("field", &w.field); err != nil {
		return err
	}
	if _, err := w.ck.Restore(ctx); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 2)) // the same on all ranks: the asking ranks and their times
	next := warmup + 10
	for i := 0; ; i++ {
		start := time.Now()
		if err := w.ck.Point(ctx); err != nil {
			return err
		}
		enough, err := w.iterate(i)
		if err != nil || enough {
			return err
		}
		if i < warmup {
			w.iteration = append(w.iteration, time.Since(start).Seconds())
		}
		if i == next { // until there are enough: requests may be merged
			who, pause := rng.IntN(w.world.Size()), time.Duration(rng.Int64N(int64(w.o.Compute)+1))
			next = i + 20 + rng.IntN(10)
			if who == w.world.Rank() {
				time.AfterFunc(pause, func() { _ = w.ck.Request(ctx) }) // the program may be over
			}
		}
	}
}

// iterate returns one iteration; it reports when all checkpoints have been taken.
func (w *worker) iterate(i int) (bool, error) {
	n, me := w.world.Size(), w.world.Rank()
	for start := time.Now(); time.Since(start) < w.o.Compute; {
		w.field[i%len(w.field)] += 1
	}
	in := []float64{0}
	if _, err := mpiwrap.Sendrecv(w.world, w.field[:1], (me+1)%n, 1, in, (me+n-1)%n, 1); err != nil {
		return false, err
	}
	done, all := []float64{0}, []float64{0}
	if len(w.ck.Stats().Epochs) >= w.o.Epochs {
		done[0] = 1
	}
	err := mpiwrap.Allreduce(w.world, all, done, mpiwrap.Min)
	return all[0] == 1, err
}

// print prints the figures.
func (w *worker) print(out io.Writer) error {
	err := bench.Print(out, iterations, w.iteration...)
	for _, e := range w.ck.Stats().Epochs {
		err = errors.Join(err, bench.Print(out, toCut, e.RequestToCut.Seconds()),
			bench.Print(out, drain, e.Drain.Seconds()), bench.Print(out, capture, e.Capture.Seconds()))
	}
	return err
}
