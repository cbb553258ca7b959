package gpustate

import (
	"context"
	"sync"
	"testing"
)

// TestThreadsOfKinds: objects without names that several goroutines make at the same time,
// each of kinds or parents of its own, are found again by a program that does the same:
// what one makes does not count in the order of another.
func TestThreadsOfKinds(t *testing.T) {
	const each = 12
	onDevices(t, func(t *testing.T, open func() *Device) {
		type made struct {
			buffers []*Buffer
			shared  []*Shared
			hosts   []*HostBuffer
			queues  []*Queue
			kernels [2][]*Kernel
			ranges  [2][]*Buffer
		}
		begin := func(d *Device) *made {
			m := &made{}
			var parents [2]*Buffer
			var programs [2]*Program
			for i, name := range []string{"a", "b"} { // in order: they have the same kind
				parents[i] = must(d.Buffer(name, each*SubAlign))(t)
				programs[i] = must(d.Program(name, Sources{OpenCL: putSource}, ""))(t)
			}
			var all sync.WaitGroup
			side := func(do func(i int) error) {
				all.Go(func() {
					for i := range each {
						if err := do(i); err != nil {
							t.Error(err)
						}
					}
				})
			}
			side(func(i int) (err error) { m.buffers, err = grow(d.Buffer("", 64))(m.buffers); return })
			side(func(i int) (err error) { m.shared, err = grow(d.Shared("", 64))(m.shared); return })
			side(func(i int) (err error) { m.hosts, err = grow(d.HostBuffer("", 64))(m.hosts); return })
			side(func(i int) (err error) { m.queues, err = grow(d.Queue(""))(m.queues); return })
			for p := range programs {
				side(func(i int) (err error) {
					m.kernels[p], err = grow(programs[p].NewKernel("put"))(m.kernels[p])
					return
				})
				side(func(i int) (err error) {
					m.ranges[p], err = grow(parents[p].Sub("", i*SubAlign, 64))(m.ranges[p])
					return
				})
			}
			all.Wait()
			return m
		}
		d := open()
		o := begin(d)
		if t.Failed() {
			return
		}
		q := o.queues[3]
		for i := range each {
			fillWith(t, q, o.buffers[i], byte(10+i))
			fillWith(t, q, o.shared[i], byte(30+i))
			fillWith(t, q, o.ranges[0][i], byte(50+i))
			fillWith(t, q, o.ranges[1][i], byte(70+i))
			o.hosts[i].Host()[5] = byte(90 + i)
			for p := range o.kernels {
				ok(t, o.kernels[p][i].SetArgs(o.buffers[i], float32(100*p+i), Local(16)))
			}
		}
		c := must(d.Capture(context.Background(), nil))(t)
		defer func() { ok(t, c.Release()) }()
		next := open()
		ok(t, next.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
			return c.ReadAt(context.Background(), i, dst, off)
		}))
		o = begin(next)
		if t.Failed() {
			return
		}
		ok(t, next.Ordered())
		q = o.queues[7]
		for i := range each {
			o.buffers[i].check(t, q, byte(10+i))
			o.shared[i].check(t, q, byte(30+i))
			o.ranges[0][i].check(t, q, byte(50+i))
			o.ranges[1][i].check(t, q, byte(70+i))
			if got := o.hosts[i].Host()[5]; got != byte(90+i) {
				t.Errorf("host buffer %d holds %d", i, got)
			}
			for p := range o.kernels {
				must(q.Launch(o.kernels[p][i], []int{1}, nil))(t)
				got := make([]float32, 1)
				ok(t, q.Read(o.buffers[i], 0, Bytes(got)))
				if want := float32(100*p + i); got[0] != want {
					t.Errorf("kernel %d of program %d puts %g, want %g", i, p, got[0], want)
				}
			}
		}
	})
}

// grow appends what was made.
func grow[T any](v T, err error) func([]T) ([]T, error) {
	return func(list []T) ([]T, error) { return append(list, v), err }
}
