package gputest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gputest/internal/foreign"
)

// memory is a buffer, a range of one, a shared or host buffer, or an image.
type memory struct {
	common
	bytes  int
	kind   int
	parent *memory // of a range
	off    int
	want   []byte // a range's are its parent's
	last   *gpustate.Event
	lastQ  *queue
	array  bool // an image is eight lines, not a plane of eight rows
	fenced bool // a barrier of lastQ came after last

	linear gpustate.Linear // all but host buffers and images
	host   *gpustate.HostBuffer
	image  *gpustate.Image
	handle interface{ Release() error }
}

// Kinds of memory in random programs.
const (
	kindBuffer = iota
	kindRange
	kindShared
	kindHost
	kindImage
)

// base returns the object that has the bytes.
func (x *memory) base() *memory {
	if x.parent != nil {
		return x.parent
	}
	return x
}

func (x *memory) make(m *model) (err error) {
	x.last, x.lastQ = nil, nil
	switch x.kind {
	case kindBuffer:
		var b *gpustate.Buffer
		b, err = m.dev.Buffer(x.name, x.bytes)
		x.linear, x.handle = b, b
	case kindRange:
		var b *gpustate.Buffer
		b, err = x.parent.linear.(*gpustate.Buffer).Sub(x.name, x.off, x.bytes)
		x.linear, x.handle = b, b
	case kindShared:
		var s *gpustate.Shared
		s, err = m.dev.Shared(x.name, x.bytes)
		x.linear, x.handle = s, s
	case kindHost:
		x.host, err = m.dev.HostBuffer(x.name, x.bytes)
		x.handle = x.host
	default:
		form := gpustate.ImageDesc{Width: x.bytes / 4 / 8, Height: 8, Order: gpustate.ChannelRGBA,
			Type: gpustate.ChannelUint8}
		if x.array {
			form.Dims, form.Height, form.Layers = 1, 0, 8
		}
		x.image, err = m.dev.Image(x.name, form)
		x.handle = x.image
	}
	return err
}

func (x *memory) release() error { return x.handle.Release() }

type program struct {
	common
	src gpustate.Sources
	p   *gpustate.Program
}

func (p *program) make(m *model) (err error) {
	p.p, err = m.dev.Program(p.name, p.src, "")
	return err
}

func (p *program) release() error { return p.p.Release() }

// program returns the suite's, told from others by a comment; some have binary forms too,
// which no device loads, so that it takes the source.
func (m *model) program(name string) *program {
	p := &program{src: Sources}
	p.name = name
	note := fmt.Sprint("\n// variant ", m.r.IntN(3))
	p.src.OpenCL += note
	p.src.CUDA += note
	if m.r.IntN(4) == 0 {
		p.src.PTX = []byte(".version 6.0\n.target sm_50\nthis is none\n")
		p.src.IL = []byte("\x03\x02\x23\x07 and this is no SPIR-V")
	}
	return p
}

type kernel struct {
	common
	p    *program
	args axpyArgs
	k    *gpustate.Kernel
}

// axpyArgs are the arguments of axpy.
type axpyArgs struct {
	y, x *memory // nil: not set
	a    float32
	n    int32
	null bool // y and x are null pointers, and n is 0
	// kept reports that the device has them although the program may have released them:
	// a rollback brought them back.
	kept bool
	// unsure reports that the state after a restart is not known: what is released before the restore comes back
	// with it, what is released after it does not.
	unsure bool
}

// usable reports whether a kernel can be launched with them.
func (a *axpyArgs) usable() bool { return a.y != nil && (a.kept || a.y.alive && a.x.alive) }

func (k *kernel) make(*model) (err error) {
	if k.name != "" {
		k.k, err = k.p.p.Kernel(k.name)
	} else {
		k.k, err = k.p.p.NewKernel("axpy")
	}
	return err
}

func (k *kernel) release() error { return k.k.Release() }

type queue struct {
	common
	opt gpustate.QueueOptions
	q   *gpustate.Queue

	events []*gpustate.Event // some that the program holds on to
}

func (q *queue) make(m *model) (err error) {
	q.q, err = m.dev.QueueWith(q.name, q.opt)
	q.events = nil
	return err
}

func (q *queue) release() error { return q.q.Release() }

// releaseBusy releases the queue while other goroutines of the program issue commands on it until that is refused, and
// perhaps look at them and have another queue wait for them. When it is over all of them are complete, and hold nothing
// of the device, whether anybody asks about them or not: Close finds what they hold.
func (q *queue) releaseBusy(m *model) error {
	looks, asks := m.luck.IntN(2) == 0, m.luck.IntN(2) == 0
	b := &busy{q: q.q, other: m.loose.q, events: slices.Clone(q.events), over: make(chan struct{})}
	var others, begun sync.WaitGroup
	for range 3 {
		begun.Add(1)
		others.Go(func() { b.issue(sync.OnceFunc(begun.Done)) })
	}
	if looks {
		others.Go(b.look)
	}
	begun.Wait()
	err := q.q.Release()
	close(b.over)
	if err != nil {
		return err // and what is issued goes on: the test ends here
	}
	others.Wait()
	if asks {
		b.ask(b.events)
	}
	return errors.Join(b.failed...)
}

// busy is a queue that goroutines use while it is released.
type busy struct {
	q, other *gpustate.Queue
	over     chan struct{} // closed when it is released

	mu     sync.Mutex
	events []*gpustate.Event // guarded by mu: of the queue
	failed []error           // guarded by mu
}

// issue issues markers until the queue is gone.
func (b *busy) issue(begun func()) {
	defer begun()
	for n := 0; ; n++ {
		e, err := b.q.Marker()
		b.mu.Lock()
		switch {
		case err == nil:
			b.events = append(b.events, e)
		case !errors.Is(err, gpustate.ErrReleased):
			b.failed = append(b.failed, err)
		}
		b.mu.Unlock()
		if err != nil {
			return
		}
		if n == 2 {
			begun()
		}
	}
}

// look asks about the newest commands.
func (b *busy) look() {
	for n := 0; ; n++ {
		b.mu.Lock()
		list := slices.Clone(b.events[max(len(b.events)-4, 0):])
		b.mu.Unlock()
		for _, e := range list {
			_, err := e.Done()
			if err == nil && n < 4 {
				_, err = b.other.Marker(e)
			}
			if err != nil {
				b.mu.Lock()
				b.failed = append(b.failed, err)
				b.mu.Unlock()
			}
		}
		select {
		case <-b.over:
			return
		default:
		}
	}
}

// ask makes sure that commands are complete.
func (b *busy) ask(list []*gpustate.Event) {
	for _, e := range list {
		if done, err := e.Done(); !done || err != nil {
			b.failed = append(b.failed, fmt.Errorf("a command of a queue that is released: complete %v, %w", done, err))
			return
		}
	}
}

type sampler struct {
	common
	s *gpustate.Sampler
}

func (s *sampler) make(m *model) (err error) {
	s.s, err = m.dev.Sampler(s.name, gpustate.SamplerDesc{Addressing: gpustate.AddressEdge})
	return err
}

func (s *sampler) release() error { return s.s.Release() }

// create makes an object and gives memory its first contents.
func (m *model) create(kind int) {
	m.b.Helper()
	x := &memory{bytes: 4 * (1 + m.r.IntN(3000))}
	x.name = m.label()
	switch kind {
	case 0, 1, 2:
		if m.luck.IntN(8) == 0 && m.dev.Info().MaxAllocBytes == mostSmall {
			x.bytes *= 80
		}
	case 3:
		x.bytes += 2 * gpustate.SubAlign
	case 4:
		if x = m.newRange(); x == nil {
			return
		}
	case 5:
		x.kind = kindShared
		if m.r.IntN(8) == 0 && m.dev.Info().MaxAllocBytes > mostSmall {
			x.bytes = 9<<20 + 12 // more than one piece of a transfer
		}
	case 6:
		if x.kind = kindHost; m.r.IntN(4) > 0 {
			if !m.dev.Info().Images {
				return
			}
			x.kind, x.bytes = kindImage, 4*8*(1+m.r.IntN(30))
			x.array = m.dev.Info().MaxLayers > 0 && m.r.IntN(2) == 0
		}
	default:
		m.createOther(kind)
		return
	}
	if x.parent == nil {
		x.want = make([]byte, x.bytes)
	}
	m.add(x)
	if x.parent == nil {
		m.fill(x, 0, x.bytes)
	}
}

func (m *model) newRange() *memory {
	for _, p := range find[*memory](m) {
		if p.kind == kindBuffer && p.bytes >= 2*gpustate.SubAlign {
			x := &memory{kind: kindRange, parent: p, off: gpustate.SubAlign * m.r.IntN(2)}
			x.bytes = 4 * (1 + m.r.IntN(gpustate.SubAlign/4))
			x.want, x.name = p.want[x.off:x.off+x.bytes], m.label()
			if m.fatal(x) {
				return nil
			}
			return x
		}
	}
	return nil
}

// fatal reports whether a range would end the program on NVIDIA's OpenCL (580.159), also without this library: where
// commands have used two ranges that share bytes, it does not survive the release of the first.
func (m *model) fatal(x *memory) bool {
	return m.dev.Info().Platform == "NVIDIA CUDA" && slices.ContainsFunc(find[*memory](m), func(y *memory) bool {
		return y.parent == x.parent && y.off == x.off
	})
}

func (m *model) createOther(kind int) {
	m.b.Helper()
	switch kind {
	case 7:
		q := &queue{opt: gpustate.QueueOptions{OutOfOrder: m.r.IntN(2) == 0, Window: []int{0, 2, -1}[m.r.IntN(3)]}}
		q.name = m.label()
		m.add(q)
	case 8:
		p := m.program(m.label())
		m.add(p)
		k := &kernel{p: p}
		if m.r.IntN(2) == 0 {
			k.name = "axpy"
		}
		m.add(k)
	default:
		if m.r.IntN(4) == 0 && m.dev.Info().Images {
			s := &sampler{}
			s.name = m.label()
			m.add(s)
			return
		}
		m.add(&kernel{p: pick(m, find[*program](m))})
	}
}

// foreign has code that knows native handles alone copy a buffer to another one. Half the time
// the program does not wait for it before the next capture.
func (m *model) foreign() {
	m.b.Helper()
	i := m.dev.Info()
	if m.luck.IntN(12) > 0 || i.Server != "" {
		return
	}
	var list []*memory
	for _, x := range find[*memory](m) {
		if _, ok := x.linear.(*gpustate.Buffer); ok {
			list = append(list, x)
		}
	}
	if len(list) < 2 {
		return
	}
	to, from := list[m.luck.IntN(len(list))], list[m.luck.IntN(len(list))]
	if to.base() == from.base() {
		return
	}
	code, err := foreign.For(i.Kind)
	m.b.ok(err)
	m.finish()
	n := min(to.bytes, from.bytes)
	m.b.ok(m.dev.Foreign(func(f *gpustate.Foreign) error {
		dst, err := to.linear.(*gpustate.Buffer).Pointer(f)
		m.b.ok(err)
		src, err := from.linear.(*gpustate.Buffer).Pointer(f)
		m.b.ok(err)
		q, err := m.q.q.Native(f)
		m.b.ok(err)
		return code.Copy(q, dst, src, n)
	}))
	copy(to.want[:n], from.want[:n])
	if m.luck.IntN(2) == 0 {
		m.save()
	}
	m.finish()
}

// hashed is what the hashes of a Device were of.
type hashed struct {
	dev   *gpustate.Device
	bytes map[gpustate.Hash][]byte
	sums  map[string]gpustate.Hash
}

// checkHashes compares the hashes of a capture with those of all captures of the Device before:
// chunks have the same one exactly if they have the same bytes.
func (m *model) checkHashes(c *gpustate.Capture) {
	m.b.Helper()
	if m.hashed == nil || m.hashed.dev != m.dev {
		m.hashed = &hashed{m.dev, map[gpustate.Hash][]byte{}, map[string]gpustate.Hash{}}
	}
	list, err := c.Hashes(context.Background())
	m.b.ok(err)
	for i, content := range c.Contents() {
		for k, h := range list[i] {
			if h == (gpustate.Hash{}) {
				continue
			}
			off := int64(k) * gpustate.HashBytes
			b := make([]byte, min(gpustate.HashBytes, content.Bytes-off))
			m.b.ok(c.ReadAt(context.Background(), i, b, off))
			if was, ok := m.hashed.bytes[h]; ok && len(was) == len(b) && !bytes.Equal(was, b) {
				m.b.Fatalf("content %d, chunk %d has the hash of other bytes", i, k)
			}
			if was, ok := m.hashed.sums[string(b)]; ok && was != h {
				m.b.Fatalf("content %d, chunk %d has another hash than the same bytes had", i, k)
			}
			m.hashed.bytes[h], m.hashed.sums[string(b)] = b, h
		}
	}
}
