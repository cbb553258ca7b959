package opencl

import (
	"fmt"
	"io"
	"net"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// lane is one connection for requests.
type lane struct {
	*Server
	conn net.Conn
}

// carryOut carries out one request and answers it. An error ends the service.
func (l *lane) carryOut(m *request) error {
	if m.op == opForget {
		id := m.u64()
		l.mu.Lock()
		delete(l.events, id)
		l.mu.Unlock()
		return m.end()
	}
	do := operations[m.op]
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
	var deliveries uint64
	if r.settle {
		deliveries = l.settle()
	}
	parts := net.Buffers{header(len(r.body), uint32(r.status), len(r.bulk), deliveries), r.body}
	if len(r.bulk) > 0 {
		parts = append(parts, r.bulk)
	}
	_, err = parts.WriteTo(l.conn)
	return err
}

var operations map[uint32]func(*lane, *request) (*reply, error)

func init() {
	operations = map[uint32]func(*lane, *request) (*reply, error){
		opHello: (*lane).hello, opDevices: (*lane).listDevices, opDeviceInfo: (*lane).deviceInfo,
		opCreateQueue: (*lane).createQueue, opCreateBuffer: (*lane).createBuffer, opCreateSub: (*lane).createSub,
		opCreateImage: (*lane).createImage, opCreateSample: (*lane).createSampler, opRelease: (*lane).release,
		opBuild: (*lane).build, opCreateKernel: (*lane).createKernel, opSetArg: (*lane).setArg,
		opWorkGroup: (*lane).workGroup, opArgInfo: (*lane).argInfo, opFormats: (*lane).formats,
		opLaunch: (*lane).launch, opRead: (*lane).read, opWrite: (*lane).write, opCopy: (*lane).copy,
		opFill: (*lane).fill, opMarker: (*lane).marker, opFlush: (*lane).flush, opFinish: (*lane).finishQueue,
		opUserEvent: (*lane).userEvent, opSetUserEvent: (*lane).setUserEvent, opEventStatus: (*lane).eventStatus,
		opEventTimes: (*lane).eventTimes, opWait: (*lane).waitFor, opWatch: (*lane).watch,
	}
}

// takesBulk are the operations that bytes may follow.
var takesBulk = map[uint32]bool{opCreateBuffer: true, opCreateImage: true, opWrite: true}

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

// command reads what all commands begin with.
func (l *lane) command(m *request) (q *queue, e *event, deps []*event, err error) {
	number, id, waits := m.u64(), m.u64(), m.numbers()
	if m.bad {
		return nil, nil, nil, errProtocol
	}
	if q, err = find[*queue](l.Server, number); err != nil {
		return nil, nil, nil, err
	}
	if deps, err = l.eventsOf(waits); err != nil {
		return nil, nil, nil, err
	}
	e = newEvent(id, q)
	return q, e, deps, l.addEvent(e)
}

// enqueue gives a command to its queue.
func (l *lane) enqueue(q *queue, c *command) (*reply, error) {
	if err := q.enqueue(c); err != nil {
		return failed(err)
	}
	return &reply{}, nil
}

func (l *lane) marker(m *request) (*reply, error) {
	q, e, deps, err := l.command(m)
	if err != nil {
		return nil, err
	}
	const barrier = 2
	flags := m.u32()
	if err := m.end(); err != nil {
		return nil, err
	}
	if err := q.mark(e, deps, flags&barrier != 0); err != nil {
		return failed(err)
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
		return failed(err)
	}
	return &reply{}, nil
}

func (l *lane) finishQueue(m *request) (*reply, error) {
	q, err := l.queue(m)
	if err != nil {
		return nil, err
	}
	r := &reply{settle: true}
	if err := q.finish(); err != nil {
		l.opt.Logger.Debug("finish", "err", err)
		r.status = codeOf(err)
	}
	return r, nil
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
	r := &reply{settle: true}
	for _, e := range list {
		if err := e.wait(l.ended); err != nil {
			r.status = clWaitListFailure
			if codeOf(err) == clDeviceNotAvailable {
				r.status = clDeviceNotAvailable
			}
		}
	}
	return r, nil
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
	go func() {
		var err error
		if state == stateSubmitted {
			select {
			case <-e.issued:
				err = e.err
			case <-l.ended:
				err = gpustate.ErrClosed
			}
		} else {
			err = e.wait(l.ended)
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
