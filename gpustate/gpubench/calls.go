package gpubench

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

func init() { fake.Register("busy", 2, func(fake.Launch) {}) }

// Size of the index space of the kernel.
const items = 1 << 16

// kernel makes the kernel on a device with its arguments for n rounds.
func kernel(d *gpustate.Device, n int) (*gpustate.Kernel, error) { return Busy(d, items, n) }

// recording measures what gpustate adds to the driver's calls: to setting an
// argument and to launching a short kernel, and to a program that is bound by
// its kernels.
func (r *runner) recording() (err error) {
	d, err := gpustate.Open(r.opt.Select)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	k, err := kernel(d, 0)
	if err != nil {
		return err
	}
	// without a window, which has figures of its own
	q, err := d.QueueWith("q", gpustate.QueueOptions{Window: -1})
	if err != nil {
		return err
	}
	b, err := r.bareKernel()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()

	const calls = 20000
	ours, theirs, err := r.pairs(r.opt.Runs,
		timed(func() error { return many(calls, func() error { return k.SetArg(1, int32(0)) }) }),
		timed(func() error { return many(calls, func() error { return b.setRounds(0) }) }))
	if err != nil {
		return err
	}
	r.added("SetArg", ours, theirs, calls)

	// Only the calls are timed, fewer than a driver lets wait, often and in turn:
	// what the device does meanwhile would drown the difference.
	const launches = 400
	g := driver.Grid{Dims: 1, Global: [3]int{64, 1, 1}, Local: [3]int{64, 1, 1}}
	ours, theirs, err = r.pairs(40*r.opt.Runs,
		untimed(q.Finish, func() error {
			return many(launches, func() error {
				_, err := q.Launch(k, []int{64}, []int{64})
				return err
			})
		}),
		untimed(func() error { return b.d.Finish(b.q) }, func() error {
			return many(launches, func() error { return b.launch(g) })
		}))
	if err != nil {
		return err
	}
	r.added("Launch", ours, theirs, launches)
	if q, err = d.Queue("windowed"); err != nil {
		return err
	}
	return r.kernelBound(k, q, b)
}

// kernelBound compares a program whose kernels take about a millisecond.
func (r *runner) kernelBound(k *gpustate.Kernel, q *gpustate.Queue, b *bare) error {
	rounds := 256
	for ; rounds < 1<<24; rounds *= 2 {
		begin := time.Now()
		if err := errors.Join(b.setRounds(rounds), b.launchMany(1, items)); err != nil {
			return err
		}
		if time.Since(begin) > time.Millisecond {
			break
		}
	}
	if err := errors.Join(k.SetArg(1, int32(rounds)), b.setRounds(rounds)); err != nil {
		return err
	}
	r.rounds = rounds
	const launches = 50
	ours, theirs, err := r.pairs(r.opt.Runs,
		timed(func() error {
			return errors.Join(many(launches, func() error {
				_, err := q.Launch(k, []int{items}, []int{64})
				return err
			}), q.Finish())
		}),
		timed(func() error { return b.launchMany(launches, items) }))
	if err != nil {
		return err
	}
	r.figure("kernel-bound program", "time with recording", "s", ours, median(theirs), 1.01, atMost)
	return nil
}

// timed does something and tells how many seconds it took.
func timed(do func() error) func() (float64, error) {
	return func() (float64, error) {
		begin := time.Now()
		err := do()
		return time.Since(begin).Seconds(), err
	}
}

// untimed is timed with something after it that does not count.
func untimed(after, do func() error) func() (float64, error) {
	return func() (float64, error) {
		seconds, err := timed(do)()
		return seconds, errors.Join(err, after())
	}
}

// pairs measures two ways to do the same, in turn, twice as often as runs.
func (r *runner) pairs(runs int, a, b func() (float64, error)) (as, bs []float64, err error) {
	for i := range 2*runs + 1 {
		if err := r.ctx.Err(); err != nil {
			return nil, nil, err
		}
		first, err := a()
		if err != nil {
			return nil, nil, err
		}
		second, err := b()
		if err != nil {
			return nil, nil, err
		}
		if i > 0 {
			as, bs = append(as, first), append(bs, second)
		}
	}
	return as, bs, nil
}

// added reports nanoseconds per call beyond the driver's own.
func (r *runner) added(call string, ours, theirs []float64, calls int) {
	base := median(theirs)
	for i := range ours {
		ours[i] = (ours[i] - base) / float64(calls) * 1e9
	}
	r.report(Result{Suite: "gpu", Case: "recording", Metric: call + " without recording",
		Value: base / float64(calls) * 1e9, Unit: "ns", Runs: len(theirs)})
	r.figure("recording", "added to "+call, "ns", ours, 0, 50, atMost)
}

func many(n int, do func() error) error {
	for range n {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// bare is the same kernel on the driver alone, as a program without gpustate
// would use it.
type bare struct {
	d          driver.Device
	q, x, p, k driver.Handle
	value      [4]byte
}

func (r *runner) bareKernel() (*bare, error) {
	d, err := r.bare()
	if err != nil {
		return nil, err
	}
	b := &bare{d: d}
	if b.q, err = d.CreateQueue(driver.QueueDesc{Lazy: d.Info().Lazy}); err != nil {
		return nil, err
	}
	if b.x, err = d.CreateMem(driver.MemDesc{Kind: driver.MemBuffer, Bytes: 4 * items}); err != nil {
		return nil, err
	}
	if b.p, err = d.Build(driver.ProgramDesc{Name: "busy", OpenCL: work.OpenCL, CUDA: work.CUDA}); err != nil {
		return nil, err
	}
	if b.k, err = d.CreateKernel(b.p, "busy"); err != nil {
		return nil, err
	}
	return b, errors.Join(d.SetArg(b.k, 0, driver.Arg{Kind: driver.ArgMem, Handle: b.x}), b.setRounds(0))
}

func (b *bare) setRounds(n int) error {
	for i := range b.value {
		b.value[i] = byte(n >> (8 * i))
	}
	return b.d.SetArg(b.k, 1, driver.Arg{Kind: driver.ArgValue, Value: b.value[:]})
}

func (b *bare) launchMany(n, size int) error {
	g := driver.Grid{Dims: 1, Global: [3]int{size, 1, 1}, Local: [3]int{64, 1, 1}}
	if err := many(n, func() error { return b.launch(g) }); err != nil {
		return err
	}
	return b.d.Finish(b.q)
}

func (b *bare) launch(g driver.Grid) error {
	ev, err := b.d.Launch(b.q, b.k, g, nil)
	if err == nil {
		b.d.ReleaseEvent(ev)
	}
	return err
}

func (b *bare) close() error {
	return errors.Join(b.d.ReleaseKernel(b.k), b.d.ReleaseProgram(b.p), b.d.ReleaseMem(b.x),
		b.d.ReleaseQueue(b.q), b.d.Close())
}

// windows measures what bounding the number of unfinished commands costs, for a
// program of long kernels and for one of many short ones.
func (r *runner) windows() (err error) {
	d, err := gpustate.Open(r.opt.Select)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, c := range []struct {
		name              string
		rounds, n, launch int
	}{{"short kernels", 0, 64, 4000}, {"long kernels", r.rounds, items, 50}} {
		k, err := kernel(d, c.rounds)
		if err != nil {
			return err
		}
		var base float64
		for _, window := range []int{-1, 50, 20, 10, 5, 2} {
			q, err := d.QueueWith(fmt.Sprintf("%s %d", c.name, window), gpustate.QueueOptions{Window: window})
			if err != nil {
				return err
			}
			seconds, err := r.repeat(func() error {
				return errors.Join(many(c.launch, func() error {
					_, err := q.Launch(k, []int{c.n}, []int{64})
					return err
				}), q.Finish())
			})
			if err != nil {
				return err
			}
			name := fmt.Sprintf("window %d", window)
			if window < 0 {
				base, name = median(seconds), "no window"
			}
			r.figure(c.name, name, "s", seconds, base, 0, noGoal)
		}
	}
	return nil
}
