package gpustate

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// TestReleaseInUse releases queues, buffers, kernels and programs while other goroutines
// use them and wait for their commands, beside captures and migrations. The fake ends
// the process when something is used after its release; -race sees the rest.
func TestReleaseInUse(t *testing.T) {
	fake.Hesitate(true)
	defer fake.Hesitate(false)
	for _, lazy := range []bool{false, true} {
		d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = lazy })
		u := &inUse{t: t, d: d, q: make([]*Queue, 3), b: make([]*Buffer, 4), k: make([]*Kernel, 3),
			events: make([]*Event, 8)}
		for i := range u.b {
			u.b[i] = must(d.Buffer("", 64))(t)
		}
		for i := range u.q {
			u.newQueue(i)
		}
		for i := range u.k {
			u.newKernel(i)
		}
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 1))
				for range 150 {
					u.step(r)
				}
			})
		}
		wg.Wait()
	}
}

// inUse is what the goroutines share.
type inUse struct {
	t  *testing.T
	d  *Device
	mu sync.Mutex

	q      []*Queue
	b      []*Buffer
	k      []*Kernel
	events []*Event
}

func any1[T any](u *inUse, r *rand.Rand, list []T) (int, T) {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := r.IntN(len(list))
	return i, list[i]
}

func put[T any](u *inUse, list []T, i int, v T) {
	u.mu.Lock()
	defer u.mu.Unlock()
	list[i] = v
}

func (u *inUse) newQueue(i int) { put(u, u.q, i, must(u.d.Queue(""))(u.t)) }

func (u *inUse) newKernel(i int) {
	p := must(u.d.Program("", Sources{OpenCL: axpySource}, ""))(u.t)
	put(u, u.k, i, must(p.NewKernel("axpy"))(u.t))
	u.allowed(p.Release())
}

// allowed fails the test for errors that no race explains.
func (u *inUse) allowed(err error) {
	if err != nil && !errors.Is(err, ErrReleased) && !errors.Is(err, ErrArgNotSet) {
		u.t.Error(err)
	}
}

func (u *inUse) step(r *rand.Rand) {
	_, q := any1(u, r, u.q)
	_, k := any1(u, r, u.k)
	_, x := any1(u, r, u.b)
	_, y := any1(u, r, u.b)
	at, e := any1(u, r, u.events)
	var after []*Event
	if e != nil {
		after = append(after, e)
	}
	var err error
	switch r.IntN(14) {
	case 0, 1, 2, 3:
		u.allowed(k.SetArgs(y, x, float32(0), int32(4)))
		if e, err = q.Launch(k, []int{4}, nil, after...); err == nil {
			put(u, u.events, at, e)
		}
	case 4:
		if e, err = q.WriteAsync(x, 0, make([]byte, 64), after...); err == nil {
			put(u, u.events, at, e)
		}
	case 5:
		err = q.Read(x, 0, make([]byte, 64))
	case 6:
		if x != y {
			_, err = q.Copy(x, 0, y, 0, 64, after...)
		}
	case 7:
		i, q := any1(u, r, u.q)
		err = q.Release()
		u.newQueue(i)
	case 8:
		i, k := any1(u, r, u.k)
		err = k.Release()
		u.newKernel(i)
	case 9:
		i, b := any1(u, r, u.b)
		err = b.Release()
		put(u, u.b, i, must(u.d.Buffer("", 64))(u.t))
	case 10, 11:
		if e != nil {
			err = e.Wait()
		}
	case 12:
		if e != nil {
			_, err = e.Done()
		}
	default:
		if r.IntN(4) == 0 {
			err = u.d.MigrateTo(context.Background(), Select{Kind: "fake", Index: r.IntN(2)})
		} else {
			var c *Capture
			if c, err = u.d.Capture(context.Background(), nil); err == nil {
				err = c.Release()
			}
		}
	}
	u.allowed(err)
}
