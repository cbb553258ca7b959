package mpitest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"golang.org/x/sync/errgroup"
)

// patient has senders wait for receivers that are sure to come, however long it takes, and, apart, ranks send as
// between nodes, until the test has ended.
func patient(t *testing.T, patience time.Duration, apart bool) {
	was, wasApart := devmsg.Patience, devmsg.Apart
	devmsg.Patience, devmsg.Apart = patience, apart
	t.Cleanup(func() { devmsg.Patience, devmsg.Apart = was, wasApart })
}

// aborting ends the world with the first error of a rank: the others would wait for it.
func aborting(w *World, err error) error {
	if err != nil {
		w.Abort(err)
	}
	return err
}

// TestDirectPrograms runs direct programs on simulated ranks.
func TestDirectPrograms(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 12
	}
	for _, apart := range []bool{false, true} {
		t.Run(fmt.Sprint("apart ", apart), func(t *testing.T) {
			patient(t, devmsg.Patience, apart)
			var worlds errgroup.Group
			worlds.SetLimit(4) // they wait for each other's copies most of the time
			for seed := range seeds {
				worlds.Go(func() error {
					opt := Options{Seed: seed, Delay: 0.1 * float64(seed%6),
						EagerBytes: []int{0, 1 << 20, 200}[seed%3], Pins: seed%2 == 1}
					w := NewWorld(1+int(seed)%4, opt)
					return w.Run(func(c *mpiwrap.Comm) error { return aborting(w, DirectProgram(c, seed, 60)) })
				})
			}
			if err := worlds.Wait(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestDirectProgramsFindBugsOfDevices: a device that does what it should not is found.
func TestDirectProgramsFindBugsOfDevices(t *testing.T) {
	if raceDetector {
		t.Skip("a device with a bug reads memory while the program writes it, which the race detector finds first")
	}
	for b := noBug + 1; b < bugs; b++ {
		seed, err := uint64(0), error(nil)
		for ; seed < 60 && err == nil; seed++ {
			w := NewWorld(2, Options{Seed: seed, Delay: 0.2})
			err = w.Run(func(c *mpiwrap.Comm) error { return aborting(w, directProgram(c, seed, 40, b)) })
		}
		if err == nil {
			t.Errorf("bug %d of a device is not found by %d programs", b, seed)
		}
	}
}

// TestDirectWays: messages go directly where the device lends its memory and a trial has delivered the same bytes, on
// each side by itself.
func TestDirectWays(t *testing.T) {
	for _, apart := range []bool{false, true} {
		for lends := range lendings {
			for takes := range lendings {
				t.Run(fmt.Sprint(apart, lends, takes), func(t *testing.T) {
					patient(t, time.Hour, apart)
					var got [2]mpiwrap.DeviceMessages
					w := NewWorld(2, Options{Pins: true, Delay: 0.2})
					err := w.Run(func(c *mpiwrap.Comm) (err error) {
						got[c.Rank()], err = pingPong(c, deviceThat(lends), deviceThat(takes), 12)
						return aborting(w, err)
					})
					if err != nil {
						t.Fatal(err)
					}
					for rank, m := range got {
						direct := m.SentDirect == 6 && m.SentStaged == 0
						if direct != (lends == lendsMemory) {
							t.Errorf("rank %d has sent: %+v", rank, m)
						}
						overMPI := apart || lends == lendsMemory
						if overMPI && (m.ReceivedDirect == 6) != (takes == lendsMemory) ||
							takes != lendsMemory && (m.ReceivedDirect > 0 || m.ReceivedStaged != 6) {
							t.Errorf("rank %d has received: %+v", rank, m)
						}
					}
				})
			}
		}
	}
}

// TestDirectExchange: all ranks of a ring send and receive directly in one call each, however long they wait for each
// other.
func TestDirectExchange(t *testing.T) {
	for _, apart := range []bool{false, true} {
		for _, eager := range []int{0, 1 << 20} {
			for _, ranks := range []int{2, 3, 5} {
				t.Run(fmt.Sprint(apart, eager, ranks), func(t *testing.T) {
					patient(t, time.Hour, apart)
					w := NewWorld(ranks, Options{Pins: true, Delay: 0.2, EagerBytes: eager})
					err := w.Run(func(c *mpiwrap.Comm) (err error) {
						return aborting(w, exchangeRound(c, 8))
					})
					if err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	}
}

func exchangeRound(c *mpiwrap.Comm, rounds int) error {
	me, n := c.Rank(), c.Size()
	for i := range rounds {
		src, dest := deviceWith(numbers(i*n+me, 5000+me)), newTestDevice(5000+n)
		src.lends, dest.lends = lendsMemory, lendsMemory
		st, err := mpiwrap.SendrecvDevice(c, src, (me+1)%n, i, dest, (me+n-1)%n, i)
		from := (me + n - 1) % n
		if err != nil || st.Bytes != 8*(5000+from) ||
			!slices.Equal(dest.mem[:5000+from], numbers(i*n+from, 5000+from)) {
			return fmt.Errorf("round %d: got %+v, %v, or other elements than were sent", i, st, err)
		}
	}
	if m := c.DeviceMessages(); m.SentDirect != uint64(rounds) || m.ReceivedDirect != uint64(rounds) {
		return fmt.Errorf("%d rounds: %+v", rounds, m)
	}
	return nil
}

// warnings counts the lines of a logger from slog.LevelWarn on, and below.
type warnings struct {
	slog.Handler
	mu          sync.Mutex
	loud, quiet int
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Level >= slog.LevelWarn {
		w.loud++
	} else if r.Level == slog.LevelDebug {
		w.quiet++
	}
	return nil
}

// TestFailedTrialIsSaidOnce: all ranks find that MPI does not take the devices' memory, and one says so.
func TestFailedTrialIsSaidOnce(t *testing.T) {
	patient(t, time.Hour, true)
	said := &warnings{}
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(said))
	err := NewWorld(2, Options{}).Run(func(c *mpiwrap.Comm) error {
		_, err := pingPong(c, deviceThat(lendsOther), deviceThat(lendsOther), 4)
		return err
	})
	if err != nil || said.loud != 1 || said.quiet != 3 {
		t.Errorf("%d warnings and %d lines for debugging, want 1 and 3: each rank tries both ways; %v", said.loud,
			said.quiet, err)
	}
}

// TestMessagesToItselfAreNotDirect: MPI is given no device memory for a message of a rank to itself.
func TestMessagesToItselfAreNotDirect(t *testing.T) {
	for _, apart := range []bool{false, true} {
		patient(t, time.Hour, apart)
		err := NewWorld(1, Options{}).Run(func(c *mpiwrap.Comm) error {
			for i := range 4 {
				src, dest := deviceWith(numbers(i, 5000)), newTestDevice(5000)
				src.lends, dest.lends = lendsMemory, lendsMemory
				var st mpiwrap.Status
				var err error
				if i%2 == 0 {
					st, err = mpiwrap.SendrecvDevice(c, src, 0, i, dest, 0, i)
				} else if err = mpiwrap.SendDevice(c, src, 0, i); err == nil {
					st, err = mpiwrap.RecvDevice(c, dest, 0, i)
				}
				if err != nil || st.Bytes != 40000 || !slices.Equal(dest.mem, src.mem) {
					return fmt.Errorf("message %d: got %+v, %v, or other elements than were sent", i, st, err)
				}
			}
			m := c.DeviceMessages()
			if m.SentDirect+m.ReceivedDirect != 0 || m.SentStaged != 4 || m.ReceivedStaged != 4 {
				return fmt.Errorf("messages to the rank itself: %+v", m)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestSendDeviceWaitsForNoProgram: the receiver has posted its receive and waits for what the sender sends next, in
// calls that MPI ends without any other. A sender that waited for the pieces to be taken would wait for ever.
func TestSendDeviceWaitsForNoProgram(t *testing.T) {
	for _, apart := range []bool{false, true} {
		patient(t, devmsg.Patience, apart)
		world := NewWorld(2, Options{})
		err := world.Run(func(w *mpiwrap.Comm) error {
			host := make([]int64, 20000)
			for i := range 10 {
				src, dest := deviceWith(numbers(i, 5000)), newTestDevice(5000)
				src.lends, dest.lends = lendsMemory, lendsMemory
				if w.Rank() == 1 {
					if err := mpiwrap.SendDevice(w, src, 0, 1); err != nil {
						return err
					}
					if _, err := mpiwrap.Recv(w, host, 0, 2); err != nil {
						return err
					}
					continue
				}
				r, err := mpiwrap.IrecvDevice(w, dest, 1, 1)
				if i%2 == 1 && err == nil {
					_, _, err = r.Test()
				}
				if err != nil {
					return err
				}
				if err := mpiwrap.Send(w, host, 1, 2); err != nil { // waits for its receive
					return err
				}
				if _, err := r.Wait(); err != nil || !slices.Equal(dest.mem, numbers(i, 5000)) {
					return fmt.Errorf("message %d: %v, or other elements than were sent", i, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

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

// of returns what rank from gives for rank to.
func (m *movement) of(from, to, n int) []int64 { return numbers(m.round*100+from*10+to, n) }

// source returns a device that holds v after what its queue was given.
func (m *movement) source(v []int64) *testDevice {
	d := newTestDevice(len(v))
	d.lends = m.lends
	d.spoil()
	d.set(v)
	return d
}

// target returns a device that is spoilt after what its queue was given.
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
	seeds := uint64(40)
	if testing.Short() {
		seeds = 8
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
