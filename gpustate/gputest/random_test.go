package gputest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// How many random programs the suite runs on a device, and the seed of the first.
var (
	programs = flag.Int("programs", 0, "random programs on each device; 0: 6 on the fakes, 3 where building them "+
		"takes long, and fewer with -short and on a device that was served by another kind of connection before")
	firstSeed = flag.Uint64("seed", 0, "seed of the first random program")
)

// random runs programs of random calls and compares the device with a model, over
// captures, rollbacks, restarts that make the same calls, and migrations.
func random(t *testing.T, b *bench) {
	n, steps := *programs, 120
	switch {
	case n > 0:
	case testing.Short() && b.sel.Kind == "opencl":
		n = 1
	case testing.Short():
		n = 2
	case b.sel.Kind == "opencl":
		n = 3
	default:
		n = 6
	}
	m := &bench{T: t, sel: b.sel}
	m.open() // keeps CUDA's primary context, which takes longer to make than a program runs
	for i := range n {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			fake.Reseed(seed)
			m := &model{b: &bench{T: t, sel: b.sel}, r: rand.New(rand.NewPCG(seed, 3)),
				luck: rand.New(rand.NewPCG(seed, 4))}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the last steps: %q", m.trace[max(0, len(m.trace)-40):])
				}
			})
			m.small()
			m.dev = m.b.open()
			m.begin()
			for range steps {
				m.step()
			}
			m.compare()
			m.restart()
		})
	}
}

// model is a program and what its device must hold.
type model struct {
	b     *bench
	r     *rand.Rand
	dev   *gpustate.Device
	q     *queue   // that nothing releases
	loose *queue   // another one, out of order
	calls []call   // that made and released objects, in order: a restart makes them again
	all   []object // that live
	made  int

	luck     *rand.Rand // for counters and stamps
	counters []*counter
	bare     bool // a stamp without a source was made, which a rollback may bring back

	saved  *saved  // a capture to go back to
	hashed *hashed // of the captures so far
	reads  []later // without a wait

	trace []string // what was done
}

// did notes a step for whoever looks into a failure.
func (m *model) did(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

// call makes an object, or releases it.
type call struct {
	o       object
	release bool
}

// object is one object of the program and what is known of it.
type object interface {
	make(m *model) error
	release() error
	state() *common
}

// common is what all objects have.
type common struct {
	name  string
	alive bool // not released by the program
}

func (c *common) state() *common { return c }

// saved is a capture and the model at that moment.
type saved struct {
	c    *gpustate.Capture
	want map[*memory][]byte
	args map[*kernel]axpyArgs
	ran  map[*counter]counted

	stamps map[*stamp]uint32
	again  []*program // whose names may be taken more than once
}

// begin makes the objects that live as long as the program.
func (m *model) begin() {
	m.b.Helper()
	m.q = &queue{}
	m.q.name = "q"
	m.add(m.q)
	m.add(m.program("ops"))
	m.add(&kernel{p: find[*program](m)[0]})
	m.loose = &queue{opt: gpustate.QueueOptions{OutOfOrder: true}}
	m.loose.name = "loose"
	m.add(m.loose)
	for range 3 {
		m.create(0)
	}
	for range 4 {
		m.create(6)
	}
}

// add makes an object for the first time.
func (m *model) add(o object) {
	m.b.Helper()
	make := func() error { return o.make(m) }
	if _, ok := o.(*memory); ok { // one call
		if err := m.scarce(make); !errors.Is(err, gpustate.ErrOutOfMemory) {
			make = func() error { return err }
		} // else nothing has changed: the same call makes it
	}
	m.b.ok(make())
	o.state().alive = true
	m.calls = append(m.calls, call{o: o})
	m.all = append(m.all, o)
}

func (m *model) step() {
	m.b.Helper()
	m.tick()
	m.stamp()
	m.foreign()
	m.hog()
	m.pending()
	m.look()
	if m.luck.IntN(20) == 0 {
		m.rebuild()
	}
	k := m.r.IntN(51)
	m.did("step %d", k)
	switch {
	case k < 7:
		m.create(m.r.IntN(10))
	case k < 11:
		m.release()
	case k < 15:
		m.write()
	case k < 22:
		m.launch(m.r.IntN(4) == 0)
	case k < 26:
		m.copy()
	case k < 31:
		m.refused()
	case k < 33:
		m.compare()
	case k < 34:
		m.save()
	case k < 35:
		m.rollback()
	case k < 37:
		m.restart()
	case k < 38:
		m.migrate()
	case k < 40:
		m.wait()
	case k < 42:
		m.fillRange()
	case k < 45:
		m.box()
	case k < 50:
		m.imageCommand()
	default:
		m.barrier()
	}
}

// find lists the live objects of a type.
func find[T object](m *model) []T {
	var list []T
	for _, o := range m.all {
		if t, ok := o.(T); ok {
			list = append(list, t)
		}
	}
	return list
}

func pick[T any](m *model, list []T) T { return list[m.r.IntN(len(list))] }

// label returns a name of its own, or none.
func (m *model) label() string {
	if m.r.IntN(3) > 0 {
		return ""
	}
	m.made++
	return fmt.Sprint("object ", m.made)
}

// release releases an object; others may be made from it.
func (m *model) release() {
	m.b.Helper()
	if o := m.all[m.r.IntN(len(m.all))]; !m.keeps(o) {
		m.end(o)
	}
}

func (m *model) end(o object) {
	m.b.Helper()
	i := slices.Index(m.all, o)
	m.did("release %T %p", o, o)
	for _, k := range find[*kernel](m) {
		if x, ok := o.(*memory); ok && (k.args.y == x || k.args.x == x) {
			k.args.kept = false // a rollback left the program's own object in place, which goes now
		}
	}
	if m.luck.IntN(2) == 0 {
		m.finish() // else commands that use it go on
	}
	if q, ok := o.(*queue); ok && m.luck.IntN(2) == 0 {
		m.b.ok(q.releaseBusy(m))
	} else {
		m.b.ok(o.release())
	}
	o.state().alive = false
	m.calls = append(m.calls, call{o: o, release: true})
	m.all = append(m.all[:i:i], m.all[i+1:]...)
}

// keeps tells which objects stay: a queue, and some of a kind.
func (m *model) keeps(o object) bool {
	switch o := o.(type) {
	case *queue:
		return o == m.q || o == m.loose
	case *memory:
		return o.linear != nil && len(m.linears()) < 4
	case *program:
		return len(find[*program](m)) < 2
	case *kernel:
		return len(find[*kernel](m)) < 2
	}
	return false
}

// save captures and goes on.
func (m *model) save() {
	m.b.Helper()
	m.did("save")
	m.drop()
	m.tried()
	m.dev.LimitShadow([]int64{-1, 0, 20000}[m.r.IntN(3)])
	var c *gpustate.Capture
	m.b.ok(m.scarce(func() (err error) {
		c, err = m.dev.Capture(context.Background(), nil)
		return err
	}))
	m.arrived()
	m.checkHashes(c)
	m.saved = m.note(c)
}

func (m *model) drop() {
	m.b.Helper()
	if m.saved != nil {
		m.b.ok(m.saved.c.Release())
		m.saved = nil
	}
}

// note keeps what the objects of a capture hold: also those that the program has
// released and that others are made from.
func (m *model) note(c *gpustate.Capture) *saved {
	s := &saved{c: c, want: map[*memory][]byte{}, args: map[*kernel]axpyArgs{}, ran: map[*counter]counted{},
		stamps: map[*stamp]uint32{}}
	for _, c := range m.counters {
		s.ran[c] = c.counted
	}
	for _, x := range find[*stamp](m) {
		s.stamps[x] = x.launches
	}
	for _, p := range find[*program](m) {
		if p.named() {
			s.again = append(s.again, p)
		}
	}
	for _, x := range find[*memory](m) {
		s.want[x.base()] = bytes.Clone(x.base().want)
	}
	for _, v := range find[*view](m) { // of a buffer that may have been released
		s.want[v.of] = bytes.Clone(v.of.want)
	}
	for _, k := range find[*kernel](m) {
		args := k.args
		args.kept = args.usable()
		s.args[k] = args
	}
	return s
}

// bare reports whether a program of the capture has no source.
func (s *saved) bare() bool {
	for x := range s.stamps {
		if x.form.bare {
			return true
		}
	}
	return false
}

func (s *saved) read(i int, dst []byte, off int64) error {
	return s.c.ReadAt(context.Background(), i, dst, off)
}

// rollback goes back to the capture in the same device, if there is one.
func (m *model) rollback() {
	m.b.Helper()
	if m.saved == nil {
		return
	}
	if m.dev.Info().Kind != m.b.sel.Kind && m.saved.bare() {
		return // the fake does not take one of its programs
	}
	if m.outdated(m.saved) {
		return
	}
	m.marked(m.saved)
	m.did("rollback")
	m.restore(m.saved)
	for _, k := range find[*kernel](m) {
		k.args.kept = false // memory without a holder is gone
	}
	m.apply(m.saved)
	m.compare()
	m.countAll()
	m.runStamps()
}

// apply brings the model to the capture. Objects that were made since stay as they
// are, those that were released since stay released.
func (m *model) apply(s *saved) {
	for x, want := range s.want {
		copy(x.want, want)
	}
	for k, args := range s.args {
		k.args = args
	}
	for c, counted := range s.ran {
		c.counted = counted
	}
	for x, launches := range s.stamps {
		x.launches = launches
	}
}

// restart captures, spoils the old device, and continues on a new one with the same
// calls as before, some of them before the restore.
func (m *model) restart() {
	m.b.Helper()
	m.did("restart")
	m.save()
	for _, x := range find[*memory](m) {
		m.spoil(x)
	}
	s := m.saved
	next := m.b.open()
	m.dev = next
	early := []int{0, m.r.IntN(len(m.calls) + 1), len(m.calls)}[m.r.IntN(3)]
	m.replay(m.calls[:early])
	if early > 0 {
		m.recount()
	}
	m.restore(s)
	m.replay(m.calls[early:])
	if early == 0 {
		m.recount()
	}
	m.apply(s)
	for _, k := range find[*kernel](m) {
		// the program has released it again, before the restore or after it
		k.args.unsure, k.args.kept = k.args.unsure || k.args.kept && !(k.args.y.alive && k.args.x.alive), false
	}
	m.drop()
	m.compare()
	m.countAll()
	m.runStamps()
}

// replay makes the calls again that a restarted program makes.
func (m *model) replay(calls []call) {
	m.b.Helper()
	for _, c := range calls {
		if m.forgotten(c.o) {
			continue
		}
		if c.release {
			m.b.ok(c.o.release())
			continue
		}
		m.b.ok(c.o.make(m))
	}
}

func (m *model) migrate() {
	m.b.Helper()
	m.did("migrate")
	to := m.b.sel
	if m.r.IntN(2) == 0 {
		to = gpustate.Select{Kind: "fake", Index: m.r.IntN(2)}
	}
	err := m.scarce(func() error { return m.dev.MigrateTo(context.Background(), to) })
	if errors.Is(err, gpustate.ErrOutOfMemory) { // it stays where it is
		m.compare()
		err = m.dev.MigrateTo(context.Background(), to)
	}
	if errors.Is(err, gpustate.ErrUnsupported) { // images that one of them has not
		return
	}
	if m.stays(to, err) {
		m.compare()
		return
	}
	m.b.ok(err)
	m.compare()
	m.countAll()
	m.runStamps()
}
