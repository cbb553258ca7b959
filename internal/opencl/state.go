package opencl

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// The state of a program's objects, which the library puts into its checkpoints. Numbers are
// little-endian: magic, u32 version, u32 devices; of each device u32 its number, u64 bytes and
// the record of gpustate (docs/FORMAT.md), u32 contents, of each u64 bytes and these; u32
// CRC-32C of all before it.
const (
	stateMagic   = "HFCLSTAT"
	stateVersion = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// capture drains the program's commands and takes the state of all devices; the library gets
// it by STATE.
func (h *handler) capture(m *wire.Request) (*reply, error) {
	if err := m.End(); err != nil {
		return nil, err
	}
	err := h.matchByOrder()
	if err == nil {
		err = h.completeAll()
	}
	if err != nil {
		return failed(err)
	}
	state, err := h.takeState()
	if err != nil {
		return failed(err)
	}
	h.mu.Lock()
	h.state = state
	h.mu.Unlock()
	r := &reply{deliver: true}
	r.u64(uint64(len(state)))
	return r, nil
}

// matchByOrder notes that objects are matched by the order in which they were made, which a pause does not keep.
func (s *Server) matchByOrder() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resumed {
		return coded(clInvalidOperation, "the program was paused: a checkpoint does not know the order of its objects")
	}
	s.ordered = true
	return nil
}

// giveState returns the answer to STATE: the result of CAPTURE, once.
func (h *handler) giveState(m *wire.Request) (*reply, error) {
	if err := m.End(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	r := &reply{bulk: h.state}
	h.state = nil
	h.mu.Unlock()
	if r.bulk == nil {
		return nil, fmt.Errorf("%w: no state was captured", wire.ErrProtocol)
	}
	return r, nil
}

// completeAll completes all commands. One that waits for a user event which is not set would wait
// for ever: the program stands in its call.
func (h *handler) completeAll() error {
	queues := allOf[*queue](h.Server)
	var leaving []chan struct{}
	unset := false
	h.mu.Lock()
	for _, q := range queues {
		leaving = append(leaving, q.left)
	}
	for _, e := range h.events {
		unset = unset || e.dev == nil && !e.isIssued()
	}
	h.mu.Unlock()
	for _, q := range queues {
		if unset && q.keepsBack() {
			return coded(clInvalidOperation, "commands wait for a user event that is not set: no capture")
		}
	}
	var errs []error
	for i, q := range queues {
		errs = append(errs, q.finish())
		if leaving[i] != nil { // a restarted program has made no such queue
			<-leaving[i]
		}
	}
	return errors.Join(errs...)
}

// keepsBack reports whether a command waits to be issued.
func (q *queue) keepsBack() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := range q.pending {
		if !e.isIssued() {
			return true
		}
	}
	return q.last != nil && !q.last.isIssued()
}

// takeState captures the devices that the program uses, one after the other. No command runs.
func (h *handler) takeState() ([]byte, error) {
	for _, m := range allOf[*mem](h.Server) {
		if err := m.makeCurrentOnAll(h.Server); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) } // memory takes all
	b.WriteString(stateMagic)
	put(uint32(stateVersion))
	used := h.devices.inUse()
	put(uint32(len(used)))
	for _, n := range used {
		put(uint32(n))
		if err := h.captureDevice(n, &b, put); err != nil {
			return nil, err
		}
	}
	put(crc32.Checksum(b.Bytes(), castagnoli))
	return b.Bytes(), nil
}

func (h *handler) captureDevice(n int, b *bytes.Buffer, put func(any)) (err error) {
	d, err := h.devices.at(uint64(n))
	if err != nil {
		return err
	}
	dev, err := d.open()
	if err != nil {
		return err
	}
	c, err := dev.Capture(context.Background(), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Release()) }()
	put(uint64(len(c.Record())))
	b.Write(c.Record())
	put(uint32(len(c.Contents())))
	for i, content := range c.Contents() {
		put(uint64(content.Bytes))
		at := b.Len()
		b.Grow(int(content.Bytes))
		room := b.AvailableBuffer()[:content.Bytes]
		if err := c.ReadAt(context.Background(), i, room, 0); err != nil {
			return err
		}
		if b.Write(room); b.Len() != at+int(content.Bytes) {
			return io.ErrShortWrite
		}
	}
	return nil
}

// saved is the state of one device in a state.
type saved struct {
	device   int
	record   []byte
	contents [][]byte
}

var errState = coded(clInvalidValue, "these bytes are no state of OpenCL objects, or not all of one")

// readState checks and divides a state.
func readState(b []byte) (list []saved, err error) {
	if len(b) < len(stateMagic)+12 || string(b[:len(stateMagic)]) != stateMagic {
		return nil, errState
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[len(body):]) {
		return nil, errState
	}
	m := &wire.Request{Body: body[len(stateMagic):]}
	if v := m.U32(); v != stateVersion {
		return nil, coded(clInvalidValue,
			fmt.Sprintf("a state of OpenCL objects of version %d, this command reads %d", v, stateVersion))
	}
	for n := m.U32(); n > 0 && !m.Bad(); n-- {
		s := saved{device: int(m.U32()), record: m.Take(m.Size())}
		for k := m.U32(); k > 0 && !m.Bad(); k-- {
			s.contents = append(s.contents, m.Take(m.Size()))
		}
		list = append(list, s)
	}
	if m.End() != nil {
		return nil, errState
	}
	return list, nil
}

// restore brings a state to the devices of the same numbers: into the objects that the program
// has made, and into those that it makes in the same order later.
func (h *handler) restore(m *wire.Request) (*reply, error) {
	const maxState = 1 << 40
	n := m.Bulk
	if err := m.End(); err != nil || n > maxState {
		return nil, errors.Join(err, wire.ErrProtocol)
	}
	b, err := h.bulk(n)
	if err != nil {
		return nil, err
	}
	list, err := readState(b)
	if err == nil {
		err = h.matchByOrder()
	}
	if err == nil {
		err = h.completeAll()
	}
	if err != nil {
		return failed(err)
	}
	for _, s := range list {
		if err := h.restoreDevice(s); err != nil {
			return failed(err)
		}
	}
	for _, m := range allOf[*mem](h.Server) { // each device has the bytes
		m.shared.mu.Lock()
		m.shared.current, m.shared.writer = nil, nil
		m.shared.mu.Unlock()
	}
	return &reply{deliver: true}, nil
}

func (h *handler) restoreDevice(s saved) error {
	all := h.devices.all()
	if s.device >= len(all) {
		return coded(clInvalidValue, fmt.Sprintf("the state has %d devices or more, the program has %d", s.device+1,
			len(all)))
	}
	dev, err := h.devices.use(all[s.device])
	if err != nil {
		return err
	}
	return dev.Restore(context.Background(), s.record, func(i int, dst []byte, off int64) error {
		if i >= len(s.contents) || off < 0 || off+int64(len(dst)) > int64(len(s.contents[i])) {
			return errState
		}
		copy(dst, s.contents[i][off:])
		return nil
	})
}
