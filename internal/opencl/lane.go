package opencl

import (
	"fmt"
	"io"
	"net"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// lane is one connection for requests. Those of the ring have one of their own without a
// connection.
type lane struct {
	*Server
	conn    net.Conn
	unasked bool // the program does not hear how a request went
}

// carryOut carries out one request and answers it. An error ends the service.
func (l *lane) carryOut(m *wire.Request) error {
	if err := l.drain(m.Last); err != nil {
		return err
	}
	if m.Op == wire.OpForget {
		return l.forget(m)
	}
	do := operations.of(m.Op)
	if do == nil {
		return fmt.Errorf("%w: operation %d", wire.ErrProtocol, m.Op)
	}
	if m.Bulk != 0 && !takesBulk[m.Op] {
		return fmt.Errorf("%w: operation %d with bulk", wire.ErrProtocol, m.Op)
	}
	r, err := do(l, m)
	if err != nil {
		return err
	}
	if r.later != nil {
		r.later(r)
	}
	var deliveries uint64
	if r.settle {
		deliveries = l.settle()
	}
	l.ring.beware(r.status)
	parts := net.Buffers{wire.Header(len(r.body), uint32(r.status), len(r.bulk), deliveries), r.body}
	if len(r.bulk) > 0 {
		parts = append(parts, r.bulk)
	}
	_, err = parts.WriteTo(l.conn)
	return err
}

// forget takes in that the program asks for an event no more.
func (s *Server) forget(m *wire.Request) error {
	id := m.U64()
	s.mu.Lock()
	if e := s.events[id]; e != nil {
		e.forgotten.Store(true)
		delete(s.events, id)
	}
	s.mu.Unlock()
	return m.End()
}

// operations are those of lanes, ringOperations those that the ring may have: their replies
// are a status alone.
var operations, ringOperations table

// table has what carries out an operation at its number.
type table [wire.OpCloneKernel + 1]func(*lane, *wire.Request) (*reply, error)

// of is nil for an operation that is not in the table.
func (t *table) of(op uint32) func(*lane, *wire.Request) (*reply, error) {
	if op >= uint32(len(t)) {
		return nil
	}
	return t[op]
}

func init() {
	operations = table{
		wire.OpHello: (*lane).hello, wire.OpDevices: (*lane).listDevices, wire.OpDeviceInfo: (*lane).deviceInfo,
		wire.OpCreateQueue: (*lane).createQueue, wire.OpCreateBuffer: (*lane).createBuffer,
		wire.OpCreateSub: (*lane).createSub, wire.OpCreateImage: (*lane).createImage,
		wire.OpCreateSampler: (*lane).createSampler, wire.OpRelease: (*lane).release, wire.OpBuild: (*lane).build,
		wire.OpCreateKernel: (*lane).createKernel, wire.OpSetArg: (*lane).setArg, wire.OpWorkGroup: (*lane).workGroup,
		wire.OpArgInfo: (*lane).argInfo, wire.OpFormats: (*lane).formats, wire.OpLaunch: (*lane).launch,
		wire.OpRead: (*lane).read, wire.OpWrite: (*lane).write, wire.OpCopy: (*lane).copy, wire.OpFill: (*lane).fill,
		wire.OpMarker: (*lane).marker, wire.OpFlush: (*lane).flush, wire.OpFinish: (*lane).finishQueue,
		wire.OpUserEvent: (*lane).userEvent, wire.OpSetUserEvent: (*lane).setUserEvent,
		wire.OpEventStatus: (*lane).eventStatus, wire.OpEventTimes: (*lane).eventTimes, wire.OpWait: (*lane).waitFor,
		wire.OpWatch: (*lane).watch, wire.OpShare: (*lane).share, wire.OpUnshare: (*lane).unshare,
		wire.OpSettle: (*lane).settleArea, wire.OpContext: (*lane).createContext, wire.OpCapture: (*lane).capture,
		wire.OpState: (*lane).giveState, wire.OpRestore: (*lane).restore, wire.OpCloneKernel: (*lane).cloneKernel,
	}
	for _, op := range []uint32{
		wire.OpRelease, wire.OpSetArg, wire.OpLaunch, wire.OpCopy, wire.OpFill, wire.OpMarker, wire.OpFlush,
		wire.OpFinish, wire.OpUserEvent, wire.OpSetUserEvent, wire.OpWait, wire.OpWatch, wire.OpRead, wire.OpWrite,
		wire.OpShare, wire.OpUnshare, wire.OpSettle,
	} {
		ringOperations[op] = operations[op]
	}
}

// takesBulk are the operations that bytes may follow.
var takesBulk = map[uint32]bool{wire.OpCreateBuffer: true, wire.OpCreateImage: true, wire.OpWrite: true,
	wire.OpRestore: true}

// bulk reads the bytes that follow a request. Their number has been checked.
func (l *lane) bulk(n uint64) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(l.conn, b)
	return b, err
}

// skip reads past bytes that are of no use.
func (l *lane) skip(n uint64) error {
	if n > 1<<62 {
		return wire.ErrProtocol
	}
	_, err := io.CopyN(io.Discard, l.conn, int64(n))
	return err
}

func (l *lane) hello(m *wire.Request) (*reply, error) {
	version, pid, name := m.U32(), m.U32(), string(m.Bytes())
	if err := m.End(); err != nil {
		return nil, err
	}
	if version != wire.Version {
		r := &reply{status: clDeviceNotAvailable}
		r.text(fmt.Sprintf("the library speaks version %d of the protocol, the holdfast command version %d: install "+
			"both from one release", version, wire.Version))
		return r, nil
	}
	if err := l.devices.begin(l.opt, name, int(pid)); err != nil {
		return failed(err)
	}
	return done, nil
}

func (l *lane) listDevices(m *wire.Request) (*reply, error) {
	if err := m.End(); err != nil {
		return nil, err
	}
	r := &reply{}
	list := l.devices.all()
	r.u32(uint32(len(list)))
	for _, d := range list {
		r.u64(d.typeNumber())
	}
	return r, nil
}

func (l *lane) deviceInfo(m *wire.Request) (*reply, error) {
	number, param := m.U32(), m.U32()
	if err := m.End(); err != nil {
		return nil, err
	}
	d, err := l.devices.at(uint64(number))
	if err != nil {
		return nil, err
	}
	return answered(d.ask(param))
}

// commandOf reads what all commands begin with.
func (l *lane) commandOf(m *wire.Request) (q *queue, id uint64, deps []*event) {
	q, id, deps = taken[*queue](l, m), m.U64(), l.eventsOf(m)
	for _, d := range deps {
		d.awaited.Store(true)
	}
	return q, id, deps
}

// command is commandOf with an event for the command, and flags.
func (l *lane) command(m *wire.Request) (q *queue, e *event, deps []*event, flags uint32) {
	q, id, deps := l.commandOf(m)
	e = newEvent(id, q)
	if !m.Bad() {
		m.Fail(l.addEvent(e))
	}
	return q, e, deps, m.U32()
}

// enqueue gives a command to its queue.
func (l *lane) enqueue(q *queue, c *command) (*reply, error) {
	return l.outcome(q, c.event.id, q.enqueue(c))
}

// outcome is the reply for a command that was issued, or failed when it was to be. Where the
// program does not hear of an error, the event has it, and without one the queue.
func (l *lane) outcome(q *queue, id uint64, err error) (*reply, error) {
	if err == nil {
		return done, nil
	}
	if l.unasked && id == 0 {
		q.fail(err)
	}
	return failed(err)
}

func (l *lane) marker(m *wire.Request) (*reply, error) {
	q, e, deps, flags := l.command(m)
	if err := m.End(); err != nil {
		return nil, err
	}
	if flags&wire.Alone == 0 && len(deps) == 0 {
		deps = q.before()
	}
	if err := q.mark(e, deps, flags&wire.Barrier != 0); err != nil {
		return l.outcome(q, e.id, err)
	}
	return done, nil
}

func (l *lane) flush(m *wire.Request) (*reply, error) {
	q := taken[*queue](l, m)
	if err := m.End(); err != nil {
		return nil, err
	}
	if err := q.q.Flush(); err != nil {
		if l.unasked {
			q.fail(err)
		}
		return failed(err)
	}
	return done, nil
}

func (l *lane) finishQueue(m *wire.Request) (*reply, error) {
	q := taken[*queue](l, m)
	if err := m.End(); err != nil {
		return nil, err
	}
	return &reply{settle: true, later: func(r *reply) {
		if err := q.finish(); err != nil {
			l.opt.Logger.Debug("finish", "err", err)
			r.status = codeOf(err)
		}
	}}, nil
}

func (l *lane) userEvent(m *wire.Request) (*reply, error) {
	e := newEvent(m.U64(), nil)
	m.Check(e.id != 0, "a user event without a number")
	if err := m.End(); err != nil {
		return nil, err
	}
	return done, l.addEvent(e)
}

func (l *lane) setUserEvent(m *wire.Request) (*reply, error) {
	e, status := l.event(m), int32(m.U32())
	m.Check(e != nil && e.queue == nil && status <= 0, "the state of a user event")
	err := m.End()
	if err != nil {
		return nil, err
	}
	if status < 0 {
		err = coded(status, fmt.Sprintf("a user event was set to %d", status))
	}
	if !e.issue(nil, err) {
		return failed(coded(clInvalidOperation, "the user event was set before"))
	}
	return done, nil
}

func (l *lane) eventStatus(m *wire.Request) (*reply, error) {
	e := l.event(m)
	if err := m.End(); err != nil {
		return nil, err
	}
	r := &reply{settle: true}
	r.u32(uint32(e.status()))
	return r, nil
}

func (l *lane) eventTimes(m *wire.Request) (*reply, error) {
	e := l.event(m)
	if err := m.End(); err != nil {
		return nil, err
	}
	if done, _ := e.done(); !done {
		return failed(coded(clNoProfiling, "the command is not complete"))
	}
	t, err := e.times()
	if err != nil {
		return failed(err)
	}
	r := &reply{}
	for _, v := range t {
		r.u64(v)
	}
	return r, nil
}

func (l *lane) waitFor(m *wire.Request) (*reply, error) {
	list := l.eventsOf(m)
	if err := m.End(); err != nil {
		return nil, err
	}
	return &reply{settle: true, later: func(r *reply) {
		for _, e := range list {
			if err := l.wait(e); err != nil {
				r.status = clWaitListFailure
				if codeOf(err) == clDeviceNotAvailable {
					r.status = clDeviceNotAvailable
				}
			}
		}
	}}, nil
}

// watch tells the program when an event has come to a state.
func (l *lane) watch(m *wire.Request) (*reply, error) {
	number, e, state := m.U64(), l.event(m), m.U32()
	if err := m.End(); err != nil {
		return nil, err
	}
	e.awaited.Store(true)
	go func() {
		var err error
		if state == stateSubmitted {
			if err = e.waitIssued(l.ended, l.lossFor(e)); err == nil {
				err = e.err
			}
		} else {
			err = l.wait(e)
		}
		l.settle()
		status := codeOf(err)
		if err == nil {
			status = int32(state)
		}
		l.send(wire.OpNote, number, e.id, status, nil)
	}()
	return done, nil
}
