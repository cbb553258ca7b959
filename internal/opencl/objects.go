package opencl

import (
	"errors"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// held is an object that commands which are kept back still need.
type held struct {
	mu    sync.Mutex
	users int
	gone  bool // the program has released it
	free  func() error
}

// hold keeps the object; letGo ends it.
func (h *held) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users++
}

func (h *held) letGo() {
	h.mu.Lock()
	h.users--
	free := h.gone && h.users == 0
	h.mu.Unlock()
	if free {
		_ = h.free() // the program has been told that it is gone
	}
}

// release releases the object, when nobody holds it any more.
func (h *held) release() error {
	h.mu.Lock()
	h.gone = true
	free := h.users == 0
	h.mu.Unlock()
	if free {
		return h.free()
	}
	return nil
}

// mem is a buffer, a range of one, or an image.
type mem struct {
	held
	dev   *device
	buf   *gpustate.Buffer // nil of images
	img   *gpustate.Image
	pixel int // bytes, of images
}

func (m *mem) bytes() int {
	if m.buf != nil {
		return m.buf.Bytes()
	}
	return m.img.Bytes()
}

// argument is what a kernel takes.
func (m *mem) argument() any {
	if m.buf != nil {
		return m.buf
	}
	return m.img
}

type sampler struct {
	held
	s *gpustate.Sampler
}

func accessOf(n uint32) gpustate.Access {
	switch n {
	case 1:
		return gpustate.ReadOnly
	case 2:
		return gpustate.WriteOnly
	}
	return gpustate.ReadWrite
}

func (l *lane) createQueue(m *request) (*reply, error) {
	id, number, properties := m.u64(), m.u64(), m.u32()
	if err := m.end(); err != nil {
		return nil, err
	}
	d, dev, err := l.device(number)
	if dev == nil {
		return failed(err)
	}
	const outOfOrder, profiling = 1, 2
	q := &queue{server: l.Server, dev: d, ordered: properties&outOfOrder == 0}
	q.q, err = dev.QueueWith("", gpustate.QueueOptions{OutOfOrder: !q.ordered, Profiling: properties&profiling != 0})
	if err != nil {
		return failed(err)
	}
	return &reply{}, l.add(id, q)
}

// device gives an open device; without one err says why, or is impossible.
func (l *lane) device(number uint64) (*device, *gpustate.Device, error) {
	d, err := l.devices.at(number)
	if err != nil {
		return nil, nil, err
	}
	dev, err := l.devices.use(d)
	return d, dev, err
}

// failed is the reply for a call that failed; what is impossible ends the service.
func failed(err error) (*reply, error) {
	if errors.Is(err, errProtocol) {
		return nil, err
	}
	r := &reply{status: codeOf(err)}
	r.text(err.Error())
	return r, nil
}

func (l *lane) createBuffer(m *request) (*reply, error) {
	id, number, access, size := m.u64(), m.u64(), m.u32(), m.size()
	if err := m.end(); err != nil {
		return nil, err
	}
	d, dev, err := l.device(number)
	var buf *gpustate.Buffer
	if err == nil {
		buf, err = dev.BufferFor("", size, accessOf(access))
	}
	if err != nil {
		return l.refuse(m, err)
	}
	o := &mem{dev: d, buf: buf}
	o.free = buf.Release
	return l.fillNew(m, id, o)
}

// refuse fails a request whose bulk is not used.
func (l *lane) refuse(m *request, err error) (*reply, error) {
	if skip := l.skip(m.bulk); skip != nil {
		return nil, skip
	}
	return failed(err)
}

// fillNew enters a memory object, with its first bytes where the program gives some.
func (l *lane) fillNew(m *request, id uint64, o *mem) (*reply, error) {
	if m.bulk != 0 {
		if m.bulk != uint64(o.bytes()) {
			return nil, errProtocol
		}
		b, err := l.bulk(m.bulk)
		if err != nil {
			return nil, err
		}
		if err := l.initialize(o, b); err != nil {
			_ = o.free() // the first error counts
			return failed(err)
		}
	}
	return &reply{}, l.add(id, o)
}

// initialize writes the bytes of a new object.
func (l *lane) initialize(o *mem, b []byte) error {
	dev, err := o.dev.open()
	if err != nil {
		return err
	}
	// a queue of its own name is the same at each start and each call
	q, err := dev.Queue("holdfast opencl")
	if err != nil {
		return err
	}
	if o.buf != nil {
		return q.Write(o.buf, 0, b)
	}
	return q.WriteImage(o.img, o.img.Whole(), b)
}

func (l *lane) createSub(m *request) (*reply, error) {
	id, number, _, offset, size := m.u64(), m.u64(), m.u32(), m.size(), m.size()
	if err := m.end(); err != nil {
		return nil, err
	}
	parent, err := find[*mem](l.Server, number)
	if err != nil {
		return nil, err
	}
	if parent.buf == nil {
		return nil, errProtocol
	}
	buf, err := parent.buf.Sub("", offset, size)
	if err != nil {
		return failed(err)
	}
	o := &mem{dev: parent.dev, buf: buf}
	o.free = buf.Release
	return &reply{}, l.add(id, o)
}

func (l *lane) createImage(m *request) (*reply, error) {
	id, number, access, dims, order, kind := m.u64(), m.u64(), m.u32(), m.u32(), m.u32(), m.u32()
	desc := gpustate.ImageDesc{Dims: int(dims), Width: m.size(), Height: m.size(), Depth: m.size(), Order: order,
		Type: kind, Access: accessOf(access)}
	pixel := int(m.u32())
	if err := m.end(); err != nil {
		return nil, err
	}
	if dims < 1 || dims > 3 {
		return nil, errProtocol
	}
	d, dev, err := l.device(number)
	var img *gpustate.Image
	if err == nil {
		img, err = dev.Image("", desc)
	}
	if err == nil && img.PixelBytes() != pixel {
		err = errors.Join(coded(clInvalidOperation, "pixels of another size"), img.Release())
	}
	if err != nil {
		if errors.Is(err, gpustate.ErrLimit) {
			err = coded(clInvalidImageSize, err.Error())
		} else if errors.Is(err, gpustate.ErrUnsupported) {
			const formatNotSupported = -10
			err = coded(formatNotSupported, err.Error())
		}
		return l.refuse(m, err)
	}
	o := &mem{dev: d, img: img, pixel: pixel}
	o.free = img.Release
	return l.fillNew(m, id, o)
}

func (l *lane) createSampler(m *request) (*reply, error) {
	id, number := m.u64(), m.u64()
	desc := gpustate.SamplerDesc{Normalized: m.u32() != 0, Addressing: m.u32(), Filter: m.u32()}
	if err := m.end(); err != nil {
		return nil, err
	}
	_, dev, err := l.device(number)
	if err != nil {
		return failed(err)
	}
	s, err := dev.Sampler("", desc)
	if err != nil {
		return failed(err)
	}
	o := &sampler{s: s}
	o.free = s.Release
	return &reply{}, l.add(id, o)
}

// release releases an object of any kind.
func (l *lane) release(m *request) (*reply, error) {
	id := m.u64()
	if err := m.end(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	o := l.objects[id]
	delete(l.objects, id)
	l.mu.Unlock()
	var err error
	switch o := o.(type) {
	case *queue:
		_ = o.finish() // its commands' events have the errors
		err = o.q.Release()
	case interface{ release() error }:
		err = o.release()
	default:
		return nil, errProtocol
	}
	if err != nil {
		return failed(err)
	}
	return &reply{}, nil
}

func (l *lane) formats(m *request) (*reply, error) {
	number, access, dims := m.u64(), m.u32(), m.u32()
	if err := m.end(); err != nil {
		return nil, err
	}
	if dims < 1 || dims > 3 {
		return nil, errProtocol
	}
	_, dev, err := l.device(number)
	if err != nil {
		return failed(err)
	}
	list, err := dev.ImageFormats(accessOf(access), int(dims))
	if err != nil && !errors.Is(err, gpustate.ErrUnsupported) {
		return failed(err)
	}
	r := &reply{}
	r.u32(uint32(len(list)))
	for _, f := range list {
		r.u32(f[0])
		r.u32(f[1])
	}
	return r, nil
}
