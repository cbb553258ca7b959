package opencl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is that of the protocol.
const Version = 5

// Operations. The numbers are part of the protocol; lib/opencl/src/protocol.h has them too.
const (
	opHello        = 1
	opDevices      = 2
	opDeviceInfo   = 3
	opCreateQueue  = 4
	opCreateBuffer = 5
	opCreateSub    = 6
	opCreateImage  = 7
	opCreateSample = 8
	opRelease      = 9
	opBuild        = 10
	opCreateKernel = 11
	opSetArg       = 12
	opWorkGroup    = 13
	opArgInfo      = 14
	opFormats      = 15
	opLaunch       = 16
	opRead         = 17
	opWrite        = 18
	opCopy         = 19
	opFill         = 20
	opMarker       = 21
	opFlush        = 22
	opFinish       = 23
	opUserEvent    = 24
	opSetUserEvent = 25
	opEventStatus  = 26
	opEventTimes   = 27
	opWait         = 28
	opWatch        = 29
	opForget       = 30
	opShare        = 31
	opUnshare      = 32
	opSettle       = 33
	opContext      = 34
	opCapture      = 35
	opState        = 36
	opRestore      = 37
	opCloneKernel  = 38
	opNote         = 64
	opDelivery     = 65
	opLost         = 66
)

const (
	headerBytes = 24
	maxBody     = 64 << 20
)

// errProtocol marks what no library of ours sends.
var errProtocol = errors.New("impossible message of an OpenCL program")

// request is a message of the program. Reading beyond its end makes it bad.
type request struct {
	op   uint32
	body []byte
	at   int    // what of body was read
	bulk uint64 // bytes that follow it
	last uint64 // of a lane: how far the ring was written; of the ring: the reply slot, 0 for none
	bad  bool
}

// readRequest reads a header and a body.
func readRequest(r io.Reader) (*request, error) {
	var h [headerBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(h[:])
	if n > maxBody {
		return nil, fmt.Errorf("%w: a body of %d bytes", errProtocol, n)
	}
	m := &request{op: binary.LittleEndian.Uint32(h[4:]), bulk: binary.LittleEndian.Uint64(h[8:]),
		last: binary.LittleEndian.Uint64(h[16:]), body: make([]byte, n)}
	_, err := io.ReadFull(r, m.body)
	return m, err
}

func (m *request) take(n int) []byte {
	if m.bad || n > m.left() {
		m.bad = true
		return make([]byte, min(n, 8))
	}
	b := m.body[m.at : m.at+n]
	m.at += n
	return b
}

// left is how much of the body was not read.
func (m *request) left() int { return len(m.body) - m.at }

func (m *request) u32() uint32 { return binary.LittleEndian.Uint32(m.take(4)) }
func (m *request) u64() uint64 { return binary.LittleEndian.Uint64(m.take(8)) }

// size is a number of bytes or pixels, which fits an int.
func (m *request) size() int {
	v := m.u64()
	if v > 1<<62 {
		m.bad = true
		return 0
	}
	return int(v)
}

func (m *request) bytes() []byte {
	n := m.u32()
	if uint64(n) > uint64(m.left()) {
		m.bad = true
		return nil
	}
	return m.take(int(n))
}

// numbers is a list of events or devices, as long as the body has room for.
func (m *request) numbers() []uint64 {
	n := m.u32()
	if uint64(n)*8 > uint64(m.left()) {
		m.bad = true
		return nil
	}
	if n == 0 {
		return nil
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = m.u64()
	}
	return list
}

// end says whether the message was what its operation has, and nothing more.
func (m *request) end() error {
	if m.bad || m.left() > 0 {
		return fmt.Errorf("%w: operation %d", errProtocol, m.op)
	}
	return nil
}

// reply is the answer to a request.
type reply struct {
	status int32
	body   []byte
	bulk   []byte
	settle bool         // the program is to have the bytes of reads that are complete
	later  func(*reply) // waits, and fills in the rest; may be nil
}

func (r *reply) u32(v uint32)   { r.body = binary.LittleEndian.AppendUint32(r.body, v) }
func (r *reply) u64(v uint64)   { r.body = binary.LittleEndian.AppendUint64(r.body, v) }
func (r *reply) bytes(b []byte) { r.u32(uint32(len(b))); r.body = append(r.body, b...) }
func (r *reply) text(s string)  { r.bytes([]byte(s)) }

// header is that of a reply, or of what the server sends by itself.
func header(body int, status uint32, bulk int, deliveries uint64) []byte {
	h := make([]byte, headerBytes)
	binary.LittleEndian.PutUint32(h, uint32(body))
	binary.LittleEndian.PutUint32(h[4:], status)
	binary.LittleEndian.PutUint64(h[8:], uint64(bulk))
	binary.LittleEndian.PutUint64(h[16:], deliveries)
	return h
}
