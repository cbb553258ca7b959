package apps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/bench/raw"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// Setup describes the measurement of Work.
type Setup struct {
	App, Dir, Device string
	Bytes            int64 // of a rank
	Runs             int
	MPI              bool
}

// The baselines: the time of the slowest rank in each run, in seconds.
const (
	rawWrite  = "write"  // and fsync
	rawRead   = "read"   // from the page cache
	rawUpload = "upload" // pinned memory to the device
	rawBuild  = "build"  // an application's program
)

// Work is one rank of a program that does the work of an application's checkpoint and restart without the library: as
// many bytes, by as many ranks, at the same place. Rank 0 prints the times.
func Work(_ context.Context, o Setup, _ io.Reader, out io.Writer) (err error) {
	world := mpiwrap.Single()
	if o.MPI {
		if world, err = mpiwrap.Init(mpiwrap.Options{}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, mpiwrap.Finalize()) }()
	}
	sel, err := gpustate.ParseSelect(o.Device)
	if err != nil {
		return err
	}
	sel.Rank = world.Rank()
	w := rawRank{Setup: o, world: world, sel: sel, file: filepath.Join(o.Dir, fmt.Sprintf("raw-%d", world.Rank()))}
	return w.measure(out)
}

type rawRank struct {
	Setup
	world *mpiwrap.Comm
	sel   gpustate.Select
	file  string
}

func (w *rawRank) measure(out io.Writer) error {
	data, other := make([]byte, w.Bytes), make([]byte, w.Bytes)
	rng := rand.NewChaCha8([32]byte{byte(w.world.Rank())})
	_, _ = rng.Read(data) // never fails
	copy(other, data)
	for _, s := range []struct {
		name string
		runs int
		do   func() (float64, error)
	}{
		{rawWrite, w.Runs, bench.Timed(func() error { return bench.WriteSync(w.file, data) })},
		{rawRead, w.Runs, bench.Timed(func() error { return bench.ReadInto(other, w.file, 0) })},
		{rawBuild, 1, w.build}, // before others: a restart builds in a fresh process, too
		{rawUpload, w.Runs, w.upload},
	} {
		for range s.runs {
			slowest, err := w.together(s.do)
			if err == nil && w.world.Rank() == 0 {
				err = bench.Print(out, s.name, slowest)
			}
			if err != nil {
				return err
			}
		}
	}
	return os.Remove(w.file)
}

// together runs something on all ranks at once and returns the time of the slowest.
func (w *rawRank) together(do func() (float64, error)) (float64, error) {
	if err := w.world.Barrier(); err != nil {
		return 0, err
	}
	t, err := do()
	if err != nil {
		return 0, err
	}
	slowest := []float64{0}
	err = mpiwrap.Allreduce(w.world, slowest, []float64{t}, mpiwrap.Max)
	return slowest[0], err
}

func (w *rawRank) onDevice(do func(*raw.Device) (time.Duration, error)) (seconds float64, err error) {
	dev, err := raw.Open(w.sel)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	d, err := do(dev)
	return d.Seconds(), err
}

func (w *rawRank) upload() (float64, error) {
	return w.onDevice(func(r *raw.Device) (time.Duration, error) { return r.Upload(w.Bytes) })
}

func (w *rawRank) build() (float64, error) {
	a, err := find(w.App)
	if err != nil {
		return 0, err
	}
	return w.onDevice(func(r *raw.Device) (time.Duration, error) { return r.Build(a.sources, a.options, a.kernels) })
}
