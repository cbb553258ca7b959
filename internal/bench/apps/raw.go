package apps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpubench"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// RawOptions say what Raw measures.
type RawOptions struct {
	App, Dir, Device string
	Bytes            int64 // of a rank
	Runs             int
	Ranks            int // 1: without MPI
}

// rawTimes are baselines in seconds, one of each run: what the slowest rank took.
type rawTimes struct {
	Copy   []float64 // memory to warm memory
	Write  []float64 // write and fsync
	Read   []float64 // from the page cache
	Upload []float64 // pinned memory to the device
	Build  []float64 // an application's program
}

// Raw is one rank of the program that does without the library what a checkpoint
// and a restart of an application must do: as many bytes, by as many ranks, at
// the same place. Rank 0 writes the times to out.
func Raw(_ context.Context, o RawOptions, out io.Writer) (err error) {
	world := mpiwrap.Single()
	if o.Ranks != 1 {
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
	w := rawRank{RawOptions: o, world: world, sel: sel, file: filepath.Join(o.Dir, fmt.Sprintf("raw-%d", world.Rank()))}
	var t rawTimes
	if err := w.measure(&t); err != nil {
		return err
	}
	if world.Rank() == 0 {
		return json.NewEncoder(out).Encode(t)
	}
	return nil
}

type rawRank struct {
	RawOptions
	world *mpiwrap.Comm
	sel   gpustate.Select
	file  string
}

func (w *rawRank) measure(t *rawTimes) error {
	data, other := make([]byte, w.Bytes), make([]byte, w.Bytes)
	rng := rand.NewChaCha8([32]byte{byte(w.world.Rank())})
	_, _ = rng.Read(data) // never fails
	copy(other, data)
	for _, s := range []struct {
		to   *[]float64
		runs int
		do   func() (time.Duration, error)
	}{
		{&t.Copy, w.Runs, took(func() error { copy(other, data); return nil })},
		{&t.Write, w.Runs, took(func() error { return writeSync(w.file, data) })},
		{&t.Read, w.Runs, took(func() error { return readAll(w.file, other) })},
		{&t.Build, 1, w.build}, // before others: a restart builds in a fresh process, too
		{&t.Upload, w.Runs, w.upload},
	} {
		for range s.runs {
			slowest, err := w.together(s.do)
			if err != nil {
				return err
			}
			*s.to = append(*s.to, slowest)
		}
	}
	return os.Remove(w.file)
}

// together does something on all ranks at once and returns the time of the
// slowest.
func (w *rawRank) together(do func() (time.Duration, error)) (float64, error) {
	if err := w.world.Barrier(); err != nil {
		return 0, err
	}
	d, err := do()
	if err != nil {
		return 0, err
	}
	slowest := []float64{0}
	err = mpiwrap.Allreduce(w.world, slowest, []float64{d.Seconds()}, mpiwrap.Max)
	return slowest[0], err
}

func (w *rawRank) onDevice(do func(*gpubench.Raw) (time.Duration, error)) (d time.Duration, err error) {
	raw, err := gpubench.OpenRaw(w.sel)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	return do(raw)
}

func (w *rawRank) upload() (time.Duration, error) {
	return w.onDevice(func(r *gpubench.Raw) (time.Duration, error) { return r.Upload(w.Bytes) })
}

func (w *rawRank) build() (time.Duration, error) {
	a, err := find(w.App)
	if err != nil {
		return 0, err
	}
	return w.onDevice(func(r *gpubench.Raw) (time.Duration, error) { return r.Build(a.sources, a.options, a.kernels) })
}

func took(do func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		start := time.Now()
		err := do()
		return time.Since(start), err
	}
}

func writeSync(name string, data []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func readAll(name string, into []byte) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.ReadFull(f, into)
	return err
}
