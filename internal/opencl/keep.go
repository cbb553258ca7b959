package opencl

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// kept has a paused program's state, in a file of memory, for the next process that serves it: the contents, each from
// a multiple of 4096 bytes on, a world as JSON, u32 CRC-32C of that, u64 bytes of it.
type kept struct {
	file     *os.File
	contents int64
	room     []byte    // mapped memory of the file
	since    time.Time // the program's calls wait from then on

	// fill copies the contents from the devices, and writes the rest. It sums them up or does not.
	fill func(sum bool) error
}

// newKept makes memory for n bytes of contents.
func newKept(n int64) (k *kept, err error) {
	fd, err := unix.MemfdCreate("holdfast opencl paused", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	k = &kept{file: os.NewFile(uintptr(fd), "state of an OpenCL program")}
	if err := k.grow(n); err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

// grow makes memory for n bytes, unless there is enough.
func (k *kept) grow(n int64) error {
	if n <= int64(len(k.room)) {
		return nil
	}
	err := errors.Join(k.done(), unix.Fallocate(int(k.file.Fd()), 0, 0, n))
	if err != nil {
		return fmt.Errorf("%d bytes of memory for its objects: %w", n, err)
	}
	k.room, err = unix.Mmap(int(k.file.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	return err
}

// done unmaps the memory. What it shows stays in the file.
func (k *kept) done() error {
	b := k.room
	k.room = nil
	return unmap(b)
}

// close gives it back.
func (k *kept) close() error { return errors.Join(k.done(), k.file.Close()) }

// world describes it. Numbers are the library's.
type world struct {
	Program    string
	PID        int
	Devices    int   // that the program was shown
	Used       []int // of these, where it has objects
	Deliveries uint64
	Ring       uint64 // bytes read
	LastArea   uint64
	Areas      []keptArea
	Objects    []keptObject // contexts, queues, memory, samplers, each after the object that it is made on
	Programs   []keptProgram
	Kernels    []keptKernel
	Events     []keptEvent
	Requests   []keptRequest
	Released   []uint64 // objects that only commands need
	Forgotten  []uint64 // events
	Sum        *uint32  // CRC-32C of the contents; nil: whoever keeps the file has one
	End        int64    // bytes of the file
}

type keptArea struct {
	Number  uint64
	Devices []int // that know it
}

type keptObject struct {
	ID      uint64
	Op      uint32
	Body    []byte
	At      int64 // of the contents, 0: none
	Bytes   int
	Failed  int32 // of queues: the result that the next finish reports
	Barrier int32 // of queues: the error of the last barrier
}

type keptProgram struct {
	ID, Context uint64
	Builds      map[int]text // by devices of the context
}

type keptKernel struct {
	ID, Program uint64
	Name        string
	Args        []keptArg
}

// keptArg is an argument, of a kind of the protocol; 0: none.
type keptArg struct {
	Kind    uint32
	Number  uint64
	Value   []byte
	Refused int32
}

type keptEvent struct {
	ID     uint64
	Device int // -1: a user event
	Set    bool
	Status int32
	Times  *[4]uint64
}

type keptRequest struct {
	Op         uint32
	Body, Bulk []byte
	Connection int // -1: none
	Slot       uint64
	Waits      bool // for the reply
	Kernel     uint64
	Args       []keptArg
}

// collector gathers the objects to keep: the program's, and those of its commands that are kept back.
type collector struct {
	s        *Server
	requests []*owed
	objects  map[uint64]clObject
	events   map[*event]bool
}

// object adds an object and those that it is made on.
func (c *collector) object(o clObject) {
	c.objects[o.asEntry().id] = o
	switch o := o.(type) {
	case *queue:
		c.object(o.ctx)
	case *mem:
		c.object(o.ctx)
		if o.parent != nil {
			c.object(o.parent)
		}
	case *program:
		c.object(o.ctx)
	case *kernel:
		c.object(o.program)
	}
}

// collect gathers all. Nothing runs.
func (s *Server) collect() *collector {
	c := &collector{s: s, requests: s.held.owed(), objects: map[uint64]clObject{}, events: map[*event]bool{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		c.object(o)
	}
	for _, e := range s.events {
		c.events[e] = true
	}
	for _, o := range c.requests {
		if o.kernel != nil {
			c.object(o.kernel)
		}
		for _, a := range o.args {
			if a.m != nil {
				c.object(a.m)
			} else if a.sampler != nil {
				c.object(a.sampler)
			}
		}
		if o.event == nil {
			continue
		}
		k := o.event.command.Load()
		if k == nil {
			continue
		}
		c.object(k.queue)
		for _, u := range k.uses {
			c.object(u.m)
		}
		c.events[o.event] = true
		for _, d := range k.deps {
			c.events[d] = true
		}
	}
	return c
}

// contentBytes counts the bytes of the program's memory objects.
func (s *Server) contentBytes() (n int64) {
	for _, m := range allOf[*mem](s) {
		if m.root == m {
			n += pages(m)
		}
	}
	return n
}

// keep takes the state of all objects, but for their contents.
func (s *Server) keep(k *kept) error {
	if err := s.holdable(); err != nil {
		return err
	}
	s.ring.mu.Lock()
	s.ring.in.Publish()
	s.ring.mu.Unlock()
	c := s.collect()
	w := &world{Program: s.program, PID: s.pid, Devices: len(s.devices.all()), Used: s.devices.inUse(),
		Deliveries: s.deliveries.Load(), Ring: s.ring.in.Count()}
	if err := c.describe(w); err != nil {
		return err
	}
	return c.place(w, k)
}

// describe fills in all but the contents.
func (c *collector) describe(w *world) error {
	for _, one := range inOrder[clObject](c.objects) {
		e := one.asEntry()
		if e.made == nil {
			continue
		}
		o := keptObject{ID: e.id, Op: e.made.Op, Body: e.made.Body}
		if q, ok := one.(*queue); ok {
			o.Failed = codeOf(q.failed)
			if q.barrier != nil && q.barrier.isIssued() {
				_, err := q.barrier.done()
				o.Barrier = codeOf(err)
			}
		}
		w.Objects = append(w.Objects, o)
	}
	for _, p := range inOrder[*program](c.objects) {
		o := keptProgram{ID: p.id, Context: p.ctx.id, Builds: map[int]text{}}
		for i, one := range p.builds() {
			if one != nil {
				o.Builds[i] = p.texts[i]
			}
		}
		w.Programs = append(w.Programs, o)
	}
	for _, k := range inOrder[*kernel](c.objects) {
		o := keptKernel{ID: k.id, Program: k.program.id, Name: k.name, Args: c.args(k.args)}
		for i, err := range k.refused {
			o.Args[i].Refused = codeOf(err)
		}
		w.Kernels = append(w.Kernels, o)
	}
	all := c.s.devices.all()
	for e := range c.events {
		if err := c.event(w, e, all); err != nil {
			return err
		}
	}
	slices.SortFunc(w.Events, func(a, b keptEvent) int { return cmp.Compare(a.ID, b.ID) })
	for _, o := range c.requests {
		r := keptRequest{Op: o.op, Body: o.body, Bulk: o.bulk, Connection: -1, Slot: o.slot,
			Waits: o.reply && !o.heard(), Args: c.args(o.args)}
		if o.conn != nil && r.Waits {
			r.Connection = o.conn.number
		}
		if o.kernel != nil {
			r.Kernel = o.kernel.id
		}
		w.Requests = append(w.Requests, r)
	}
	c.released(w)
	c.areas(w, all)
	return nil
}

// event describes an event. One of a command that is kept back is made by its request.
func (c *collector) event(w *world, e *event, all []*device) error {
	if e.id == 0 || e.dev != nil && !e.isIssued() {
		return nil
	}
	o := keptEvent{ID: e.id, Device: slices.Index(all, e.dev), Set: e.isIssued()}
	if o.Set {
		done, err := e.done()
		if !done {
			return fmt.Errorf("the command of event %d is not complete", e.id)
		}
		o.Status = codeOf(err)
		if t, err := e.times(); err == nil {
			o.Times = &t
		}
	}
	w.Events = append(w.Events, o)
	return nil
}

// args describes arguments. An object that the program has released, and no command keeps, is none.
func (c *collector) args(list []argument) (args []keptArg) {
	for _, a := range list {
		if a.m != nil && c.objects[a.m.id] == nil || a.sampler != nil && c.objects[a.sampler.id] == nil {
			a.kept = keptArg{}
		}
		args = append(args, a.kept)
	}
	return args
}

// released notes objects that the program has released and its commands need.
func (c *collector) released(w *world) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	gone := func(id uint64) {
		q, isQueue := c.objects[id].(*queue)
		if c.s.objects[id] == nil || isQueue && q.left != nil {
			w.Released = append(w.Released, id)
		}
	}
	for _, k := range w.Kernels {
		gone(k.ID)
	}
	for _, p := range w.Programs {
		gone(p.ID)
	}
	for _, o := range slices.Backward(w.Objects) {
		gone(o.ID)
	}
	for e := range c.events {
		if e.id != 0 && c.s.events[e.id] == nil {
			w.Forgotten = append(w.Forgotten, e.id)
		}
	}
}

// allAreas returns the areas, also those that requests are to end, in the order of their numbers.
func (s *Server) allAreas(requests []*owed) []*area {
	a := &s.areas
	a.mu.Lock()
	defer a.mu.Unlock()
	list := slices.Collect(maps.Values(a.list))
	for _, o := range requests {
		if o.area != nil && !o.heard() {
			list = append(list, o.area)
		}
	}
	slices.SortFunc(list, func(a, b *area) int { return cmp.Compare(a.number, b.number) })
	return list
}

func (c *collector) areas(w *world, all []*device) {
	w.LastArea = c.s.areas.last
	for _, a := range c.s.allAreas(c.requests) {
		one := keptArea{Number: a.number}
		for _, d := range a.known {
			one.Devices = append(one.Devices, slices.Index(all, d))
		}
		w.Areas = append(w.Areas, one)
	}
}

// page divides the beginnings of contents.
const page = 4096

// pages are the bytes that the contents of a memory object take in the file.
func pages(m *mem) int64 { return (int64(m.bytes()) + page - 1) &^ (page - 1) }

// place gives the contents their places in the file.
func (c *collector) place(w *world, k *kept) error {
	var at int64
	for i, o := range w.Objects {
		if m, ok := c.objects[o.ID].(*mem); ok && m.root == m {
			w.Objects[i].At, w.Objects[i].Bytes = at, m.bytes()
			at += pages(m)
		}
	}
	k.contents = at
	w.End = at
	k.fill = func(sum bool) error { return c.write(w, k, sum) }
	return k.grow(at)
}

// write writes the file: the contents go from the devices into it without another copy.
func (c *collector) write(w *world, k *kept, sum bool) error {
	for _, o := range w.Objects {
		if o.Bytes == 0 {
			continue
		}
		if err := c.objects[o.ID].(*mem).contents(k.room[o.At:][:o.Bytes]); err != nil {
			return fmt.Errorf("read object %d: %w", o.ID, err)
		}
	}
	if sum {
		n := crc32.Checksum(k.room[:w.End], castagnoli)
		w.Sum = &n
	}
	return k.describe(w)
}

// describe writes the world behind the contents.
func (k *kept) describe(w *world) error {
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	tail := binary.LittleEndian.AppendUint32(text, crc32.Checksum(text, castagnoli))
	tail = binary.LittleEndian.AppendUint64(tail, uint64(len(text)))
	if err := k.file.Truncate(w.End); err != nil { // objects may have gone since there was room for them
		return err
	}
	_, err = k.file.WriteAt(tail, w.End)
	return err
}

// contents reads the bytes of a memory object from a device that has them.
func (m *mem) contents(b []byte) error {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	i := max(slices.Index(m.shared.current, true), 0)
	q, err := m.ctx.open[i].Queue(ownQueue)
	if err != nil {
		return err
	}
	if m.bufs != nil {
		return q.Read(m.bufs[i], 0, b)
	}
	return q.ReadImage(m.imgs[i], m.imgs[i].Whole(), b)
}

var errKept = errors.New("the state of the paused program is damaged")

// readWorld reads the result of write, and checks it. The contents are mapped; the caller unmaps them.
func readWorld(f *os.File) (w *world, contents []byte, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, nil, err
	}
	tail, text, end, err := lastOf(size, func(b []byte, off int64) error {
		_, err := f.ReadAt(b, off)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if w, err = decodeWorld(text, tail); err != nil {
		return nil, nil, err
	}
	if w.End != end {
		return nil, nil, errKept
	}
	if w.End == 0 {
		return w, nil, nil
	}
	contents, err = unix.Mmap(int(f.Fd()), 0, int(w.End), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err == nil && w.Sum != nil && crc32.Checksum(contents, castagnoli) != *w.Sum {
		return nil, nil, errors.Join(errKept, unix.Munmap(contents))
	}
	return w, contents, err
}
