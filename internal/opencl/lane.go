package opencl

import (
	"fmt"
	"io"
	"net"
)

// lane is one connection for requests. Those of the ring have one of their own without a
// connection.
type lane struct {
	*Server
	conn    net.Conn
	unasked bool // the program does not hear how a request went
}

// carryOut carries out one request and answers it. An error ends the service.
func (l *lane) carryOut(m *request) error {
	if err := l.drain(m.last); err != nil {
		return err
	}
	if m.op == opForget {
		return l.forget(m)
	}
	do := operations.of(m.op)
	if do == nil {
		return fmt.Errorf("%w: operation %d", errProtocol, m.op)
	}
	if m.bulk != 0 && !takesBulk[m.op] {
		return fmt.Errorf("%w: operation %d with bulk", errProtocol, m.op)
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
	parts := net.Buffers{header(len(r.body), uint32(r.status), len(r.bulk), deliveries), r.body}
	if len(r.bulk) > 0 {
		parts = append(parts, r.bulk)
	}
	_, err = parts.WriteTo(l.conn)
	return err
}

// forget takes in that the program asks for an event no more.
func (s *Server) forget(m *request) error {
	id := m.u64()
	s.mu.Lock()
	if e := s.events[id]; e != nil {
		e.forgotten.Store(true)
		delete(s.events, id)
	}
	s.mu.Unlock()
	return m.end()
}

// operations are those of lanes, ringOperations those that the ring may have: their replies
// are a status alone.
var operations, ringOperations table

// table has what carries out an operation at its number.
type table [opCloneKernel + 1]func(*lane, *request) (*reply, error)

// of is nil for an operation that is not in the table.
func (t *table) of(op uint32) func(*lane, *request) (*reply, error) {
	if op >= uint32(len(t)) {
		return nil
	}
	return t[op]
}

func init() {
	operations = table{
		opHello: (*lane).hello, opDevices: (*lane).listDevices, opDeviceInfo: (*lane).deviceInfo,
		opCreateQueue: (*lane).createQueue, opCreateBuffer: (*lane).createBuffer, opCreateSub: (*lane).createSub,
		opCreateImage: (*lane).createImage, opCreateSample: (*lane).createSampler, opRelease: (*lane).release,
		opBuild: (*lane).build, opCreateKernel: (*lane).createKernel, opSetArg: (*lane).setArg,
		opWorkGroup: (*lane).workGroup, opArgInfo: (*lane).argInfo, opFormats: (*lane).formats,
		opLaunch: (*lane).launch, opRead: (*lane).read, opWrite: (*lane).write, opCopy: (*lane).copy,
		opFill: (*lane).fill, opMarker: (*lane).marker, opFlush: (*lane).flush, opFinish: (*lane).finishQueue,
		opUserEvent: (*lane).userEvent, opSetUserEvent: (*lane).setUserEvent, opEventStatus: (*lane).eventStatus,
		opEventTimes: (*lane).eventTimes, opWait: (*lane).waitFor, opWatch: (*lane).watch,
		opShare: (*lane).share, opUnshare: (*lane).unshare, opSettle: (*lane).settleArea,
		opContext: (*lane).createContext, opCapture: (*lane).capture, opState: (*lane).giveState,
		opRestore: (*lane).restore, opCloneKernel: (*lane).cloneKernel,
	}
	for _, op := range []uint32{opRelease, opSetArg, opLaunch, opCopy, opFill, opMarker, opFlush, opFinish, opUserEvent,
		opSetUserEvent, opWait, opWatch, opRead, opWrite, opShare, opUnshare, opSettle} {
		ringOperations[op] = operations[op]
	}
}

// takesBulk are the operations that bytes may follow.
var takesBulk = map[uint32]bool{opCreateBuffer: true, opCreateImage: true, opWrite: true, opRestore: true}

// bulk reads the bytes that follow a request. Their number has been checked.
func (l *lane) bulk(n uint64) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(l.conn, b)
	return b, err
}

// skip reads past bytes that are of no use.
func (l *lane) skip(n uint64) error {
	if n > 1<<62 {
		return errProtocol
	}
	_, err := io.CopyN(io.Discard, l.conn, int64(n))
	return err
}

func (l *lane) hello(m *request) (*reply, error) {
	version, pid, name := m.u32(), m.u32(), string(m.bytes())
	if err := m.end(); err != nil {
		return nil, err
	}
	if version != Version {
		r := &reply{status: clDeviceNotAvailable}
		r.text(fmt.Sprintf("the library speaks version %d of the protocol, the holdfast command version %d: install "+
			"both from one release", version, Version))
		return r, nil
	}
	if err := l.devices.begin(l.opt, name, int(pid)); err != nil {
		return failed(err)
	}
	return &reply{}, nil
}

func (l *lane) listDevices(m *request) (*reply, error) {
	if err := m.end(); err != nil {
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

func (l *lane) deviceInfo(m *request) (*reply, error) {
	number, param := m.u32(), m.u32()
	if err := m.end(); err != nil {
		return nil, err
	}
	d, err := l.devices.at(uint64(number))
	if err != nil {
		return nil, err
	}
	b, err := d.ask(param)
	if err != nil {
		return failed(err)
	}
	r := &reply{}
	r.bytes(b)
	return r, nil
}

// commandOf reads what all commands begin with.
func (l *lane) commandOf(m *request) (q *queue, id uint64, deps []*event, err error) {
	number, id, waits := m.u64(), m.u64(), m.numbers()
	if m.bad {
		return nil, 0, nil, errProtocol
	}
	if q, err = find[*queue](l.Server, number); err != nil {
		return nil, 0, nil, err
	}
	deps, err = l.eventsOf(waits)
	for _, d := range deps {
		d.awaited.Store(true)
	}
	return q, id, deps, err
}

// command is commandOf with an event for the command.
func (l *lane) command(m *request) (q *queue, e *event, deps []*event, err error) {
	q, id, deps, err := l.commandOf(m)
	if err != nil {
		return nil, nil, nil, err
	}
	e = newEvent(id, q)
	return q, e, deps, l.addEvent(e)
}

// enqueue gives a command to its queue.
func (l *lane) enqueue(q *queue, c *command) (*reply, error) {
	return l.outcome(q, c.event.id, q.enqueue(c))
}

// done is the reply where there is nothing to say. Nobody changes it.
var done = &reply{}

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

func (l *lane) marker(m *request) (*reply, error) {
	q, e, deps, err := l.command(m)
	if err != nil {
		return nil, err
	}
	const barrier, alone = 2, 4
	flags := m.u32()
	if err := m.end(); err != nil {
		return nil, err
	}
	if flags&alone == 0 && len(deps) == 0 {
		deps = q.before()
	}
	if err := q.mark(e, deps, flags&barrier != 0); err != nil {
		return l.outcome(q, e.id, err)
	}
	return &reply{}, nil
}

func (l *lane) queue(m *request) (*queue, error) {
	number := m.u64()
	if err := m.end(); err != nil {
		return nil, err
	}
	return find[*queue](l.Server, number)
}

func (l *lane) flush(m *request) (*reply, error) {
	q, err := l.queue(m)
	if err != nil {
		return nil, err
	}
	if err := q.q.Flush(); err != nil {
		if l.unasked {
			q.fail(err)
		}
		return failed(err)
	}
	return &reply{}, nil
}

func (l *lane) finishQueue(m *request) (*reply, error) {
	q, err := l.queue(m)
	if err != nil {
		return nil, err
	}
	return &reply{settle: true, later: func(r *reply) {
		if err := q.finish(); err != nil {
			l.opt.Logger.Debug("finish", "err", err)
			r.status = codeOf(err)
		}
	}}, nil
}

func (l *lane) userEvent(m *request) (*reply, error) {
	e := newEvent(m.u64(), nil)
	if err := m.end(); err != nil {
		return nil, err
	}
	if e.id == 0 {
		return nil, errProtocol
	}
	return &reply{}, l.addEvent(e)
}

func (l *lane) setUserEvent(m *request) (*reply, error) {
	id, status := m.u64(), int32(m.u32())
	if err := m.end(); err != nil {
		return nil, err
	}
	e, err := l.event(id)
	if err != nil {
		return nil, err
	}
	if e.queue != nil || status > 0 {
		return nil, errProtocol
	}
	if status < 0 {
		err = coded(status, fmt.Sprintf("a user event was set to %d", status))
	}
	if !e.issue(nil, err) {
		return failed(coded(clInvalidOperation, "the user event was set before"))
	}
	return &reply{}, nil
}

// onlyEvent reads a request that names an event and nothing else.
func (l *lane) onlyEvent(m *request) (*event, error) {
	id := m.u64()
	if err := m.end(); err != nil {
		return nil, err
	}
	return l.event(id)
}

func (l *lane) eventStatus(m *request) (*reply, error) {
	e, err := l.onlyEvent(m)
	if err != nil {
		return nil, err
	}
	r := &reply{settle: true}
	r.u32(uint32(e.status()))
	return r, nil
}

func (l *lane) eventTimes(m *request) (*reply, error) {
	e, err := l.onlyEvent(m)
	if err != nil {
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

func (l *lane) waitFor(m *request) (*reply, error) {
	numbers := m.numbers()
	if err := m.end(); err != nil {
		return nil, err
	}
	list, err := l.eventsOf(numbers)
	if err != nil {
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
func (l *lane) watch(m *request) (*reply, error) {
	number, id, state := m.u64(), m.u64(), m.u32()
	if err := m.end(); err != nil {
		return nil, err
	}
	e, err := l.event(id)
	if err != nil {
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
		l.send(opNote, number, id, status, nil)
	}()
	return &reply{}, nil
}
