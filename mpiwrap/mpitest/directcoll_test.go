package mpitest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
)

// DirectCollectives runs a random list of n collectives. The devices of each rank lend their memory, lend other
// memory, or lend nothing, whatever those of the others do; some ranks have host memory.
func DirectCollectives(w *mpiwrap.Comm, seed uint64, n int) error {
	script := rand.New(rand.NewPCG(seed, 22))
	mine := rand.New(rand.NewPCG(seed, uint64(1000+w.Rank())))
	for i := range n {
		elements := 8200 + script.IntN(3000)
		if script.IntN(6) == 0 {
			elements = script.IntN(40) // short
		}
		lends, takes := lending(mine.IntN(int(lendings))), lending(mine.IntN(int(lendings)))
		if mine.IntN(2) == 0 {
			lends, takes = lendsMemory, lendsMemory
		}
		k := script.IntN(len(movers))
		c := &movement{w: w, n: elements, root: script.IntN(w.Size()), round: i, mine: mine, lends: lends, takes: takes}
		before := w.DeviceMessages().CollectivesDirect
		if err := movers[k](c); err != nil {
			return fmt.Errorf("seed %d, collective %d, of kind %d, %d elements, memory %d and %d: %w", seed, i, k,
				elements, lends, takes, err)
		}
		if got, want := w.DeviceMessages().CollectivesDirect-before, c.direct; got != want {
			return fmt.Errorf("seed %d, collective %d, of kind %d, %d elements, memory %d and %d: %d went directly, "+
				"want %d", seed, i, k, elements, lends, takes, got, want)
		}
	}
	return Drain(w)
}

// movement is one collective of the list, on one rank.
type movement struct {
	w              *mpiwrap.Comm
	n, root, round int // script
	mine           *rand.Rand
	lends, takes   lending
	direct         uint64 // how many collectives should go directly
}

// of is what rank from gives for rank to.
func (m *movement) of(from, to, n int) []int64 { return numbers(m.round*100+from*10+to, n) }

// source is a device that holds v after what its queue was given.
func (m *movement) source(v []int64) *testDevice {
	d := newTestDevice(len(v))
	d.lends = m.lends
	d.spoil()
	d.set(v)
	return d
}

// target is a device that is spoilt after what its queue was given.
func (m *movement) target(n int) *testDevice {
	d := newTestDevice(n)
	d.lends = m.takes
	d.spoil()
	return d
}

// expect counts a collective that has this memory if it should go directly.
func (m *movement) expect(memory ...*testDevice) {
	for _, d := range memory {
		if d.lends != lendsMemory || 8*len(d.mem) < devmsg.LargeBytes {
			return
		}
	}
	m.direct++
}

// got compares what a device has with what it should have, and sees that its neighbours are as they were.
func got(d *testDevice, want []int64) error {
	v, beside := d.contents()
	if beside == nil && !slices.Equal(v, want) {
		beside = fmt.Errorf("other elements came than were sent")
	}
	return beside
}

// movers are collectives that only move bytes.
var movers = []func(m *movement) error{
	func(m *movement) error {
		want := m.of(m.root, 0, m.n)
		d := m.target(m.n)
		if m.w.Rank() == m.root {
			d = m.source(want)
		}
		m.expect(d)
		if m.mine.IntN(4) == 0 { // a host's memory, of the same length
			host := slices.Clone(want)
			if m.w.Rank() != m.root {
				clear(host)
			}
			m.direct = 0
			err := mpiwrap.BcastDevice(m.w, mpiwrap.HostRange(host), m.root)
			if err == nil && !slices.Equal(host, want) {
				err = fmt.Errorf("other elements came to the host than were sent")
			}
			return err
		}
		if err := mpiwrap.BcastDevice(m.w, d, m.root); err != nil {
			return err
		}
		return got(d, want)
	},
	func(m *movement) error {
		var want []int64
		for from := range m.w.Size() {
			want = append(want, m.of(from, 0, m.n)...)
		}
		src, dest := m.source(m.of(m.w.Rank(), 0, m.n)), m.target(len(want))
		m.expect(src, dest)
		if err := mpiwrap.AllgatherDevice(m.w, dest, src); err != nil {
			return err
		}
		src.spoil() // after the call
		return got(dest, want)
	},
	func(m *movement) error {
		var all, want []int64
		for r := range m.w.Size() {
			all = append(all, m.of(m.w.Rank(), r, m.n)...)
			want = append(want, m.of(r, m.w.Rank(), m.n)...)
		}
		src, dest := m.source(all), m.target(len(want))
		m.expect(src, dest)
		if err := mpiwrap.AlltoallDevice(m.w, dest, src); err != nil {
			return err
		}
		src.spoil()
		return got(dest, want)
	},
	func(m *movement) error { // what lies between the parts stays
		me, size, gap := m.w.Rank(), m.w.Size(), 3
		src, dest := m.source(slices.Repeat([]int64{-2}, size*(m.n+gap))), m.target(size*(m.n+gap))
		all, want := make([]int64, size*(m.n+gap)), slices.Repeat([]int64{-1}, size*(m.n+gap))
		scounts, sdispls, rcounts, rdispls := make([]int, size), make([]int, size), make([]int, size), make([]int, size)
		for r := range size {
			scounts[r], rcounts[r] = m.n-r, m.n-me
			sdispls[r], rdispls[r] = r*(m.n+gap), (size-1-r)*(m.n+gap)
			if m.n < size {
				scounts[r], rcounts[r] = 0, 0
			}
			copy(all[sdispls[r]:], m.of(me, r, scounts[r]))
			copy(want[rdispls[r]:], m.of(r, me, rcounts[r]))
		}
		src.set(all)
		m.expect(src, dest)
		if err := mpiwrap.AlltoallvDevice[int64](m.w, dest, rcounts, rdispls, src, scounts, sdispls); err != nil {
			return err
		}
		src.spoil()
		return got(dest, want)
	},
	func(m *movement) error { // src is dest: through host memory, as MPI would not have it
		var all, want []int64
		for r := range m.w.Size() {
			all = append(all, m.of(m.w.Rank(), r, m.n)...)
			want = append(want, m.of(r, m.w.Rank(), m.n)...)
		}
		d := m.source(all)
		if err := mpiwrap.AlltoallDevice(m.w, d, d); err != nil {
			return err
		}
		return got(d, want)
	},
}

// TestDirectCollectives: collectives of simulated ranks give the same elements whichever way each rank goes.
func TestDirectCollectives(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		w := NewWorld(1+int(seed)%4, Options{Seed: seed, Delay: 0.1 * float64(seed%4), Pins: seed%2 == 1})
		err := w.Run(func(c *mpiwrap.Comm) error { return aborting(w, DirectCollectives(c, seed, 20)) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestDirectBcastInParts: a Bcast of more than a piece goes directly on one rank and in pieces on the other.
func TestDirectBcastInParts(t *testing.T) {
	for direct := range 2 {
		n := 2*devmsg.VectorBytes/8 + 100
		w := NewWorld(2, Options{})
		err := w.Run(func(c *mpiwrap.Comm) error {
			m := &movement{w: c, n: n, lends: lendsMemory, takes: lendsMemory}
			d := m.target(n)
			if c.Rank() == 0 {
				d = m.source(m.of(0, 0, n))
			}
			if c.Rank() != direct {
				d.lends = lendsNothing
			}
			if err := aborting(w, mpiwrap.BcastDevice(c, d, 0)); err != nil {
				return err
			}
			if went := c.DeviceMessages().CollectivesDirect == 1; went != (c.Rank() == direct) {
				return fmt.Errorf("rank %d of a broadcast: %+v", c.Rank(), c.DeviceMessages())
			}
			return got(d, m.of(0, 0, n))
		})
		if err != nil {
			t.Error(err)
		}
	}
}
