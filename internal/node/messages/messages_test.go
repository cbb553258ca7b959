package messages

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/test/cheader"
)

// TestHeader compares the numbers with those that C has.
func TestHeader(t *testing.T) { cheader.Check(t, "../../../lib/common/messages.h", "HFM_", ".", "") }

// newPage returns a page as the layer begins it.
func newPage(size int) *Page {
	words := make([]uint64, Bytes(size)/8+1) // aligned as a mapping is
	return NewPage(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words)), size)
}

func (p *Page) setU32(at int, v uint32) { binary.LittleEndian.PutUint32(p.b[at:], v) }
func (p *Page) setU64(at int, v uint64) { atomic.StoreUint64(p.word(at), v) }

// TestPage reads what the layer writes of a call and of communicators.
func TestPage(t *testing.T) {
	p := newPage(4)
	copy(p.b[CallsAt+3*CallBytes:], "MPI_Waitall\x00")
	for i, name := range []string{"world.1", "world"} {
		at := CommsAt + i*SlotBytes
		p.setU64(at, uint64(10+i))
		p.setU32(at+8, SlotLive)
		p.setU32(at+16, uint32(2+2*i))
		p.setU32(at+20, uint32(2-i)) // made the other way round
		copy(p.b[at+24:], name+"\x00")
	}
	p.setU32(CountsAt+16*4+4, 3) // the second member of the first
	p.setU32(atComms, 2)
	p.setU32(atCall, 3)
	p.setU32(atFlags, CallAll)
	p.setU32(atComm, ^uint32(0))
	p.setU32(atWaits, 2)
	p.setU32(WaitsAt, ^uint32(0))
	p.setU32(WaitsAt+4, 9)
	p.setU32(WaitsAt+16, 2)
	p.setU32(WaitsAt+20, ^uint32(0))
	p.setU32(WaitsAt+24, 1)
	p.setU32(WaitsAt+28, WaitSend|WaitTaken)
	p.setU64(atSeq, 7)
	want := endpoint.Activity{Seq: 4, Blocked: true, Op: "MPI_Waitall", All: true, Every: true, Waits: []endpoint.Wait{
		{Comm: "world.1", Source: -1, Tag: 9, Members: []int{0, 3}},
		{Comm: "world", Source: 2, Tag: -1, Send: true, Taken: true, Peer: 2},
	}}
	if got := p.Activity(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	p.setU64(atSeq, 8)
	if got := p.Activity(); got.Blocked || got.Seq != 4 {
		t.Errorf("after the call: %+v", got)
	}
	colls := []endpoint.Collective{{Comm: "world", Size: 4, Entered: 11}, {Comm: "world.1", Size: 2, Entered: 10}}
	if got := p.Collectives(); !reflect.DeepEqual(got, colls) {
		t.Errorf("got %+v, want %+v", got, colls)
	}
	p.setU32(CountsAt+16*4+4, NoMember) // an intercommunicator
	if _, members := p.comm(0); !reflect.DeepEqual(members, []int{0}) {
		t.Errorf("members %v", members)
	}
	p.setU64(CountsAt+16, 5)
	p.setU64(CountsAt+8*(4+3), 6)
	if p.sent(2) != 5 || p.received(3) != 6 {
		t.Errorf("sent %d, received %d", p.sent(2), p.received(3))
	}
	for r, n := range []uint64{0, 0, 5, 0} {
		if got, err := sentBy(p.sentTo(), r); got != n || err != nil {
			t.Errorf("sent to rank %d: %d, %v", r, got, err)
		}
	}
}

// TestPageOfNonsense: a program may write anything to its page.
func TestPageOfNonsense(t *testing.T) {
	p := newPage(3)
	for i := range CountsAt {
		p.b[i] = 0xff
	}
	p.Activity()
	p.Polling()
	p.Collectives()
	for i := range p.b {
		p.b[i] = 0x01
	}
	p.Activity()
	p.Polling()
	p.Collectives()
}

func sample() *endpoint.Record {
	return &endpoint.Record{Rank: 1, Size: 3, Comms: []endpoint.RecordComm{
		{Name: "world", How: endpoint.RecordCreation{Op: "Init"}, Members: []int{0, 1, 2}, Children: 1},
		{Name: "world.1[1]", How: endpoint.RecordCreation{Parent: "world", Op: "Comm_split"}, Members: []int{1, 2}},
	}, Boxes: []endpoint.RecordMessage{
		{Comm: "world", Source: 2, Tag: 7, Data: []byte("one"), Receive: 1}, {Comm: "world.1[1]", Source: 0, Tag: 0,
			Data: []byte{}},
	}, Receives: []endpoint.PendingReceive{{Comm: "world", Source: -1, Tag: 7, Came: true}, {Comm: "world", Source: 0,
		Tag: -1}}, Requests: []endpoint.RecordRequest{{Name: "left", Comm: "world", Call: "Irecv", Peer: -1, Tag: 7,
		Receive: 1, Started: true, Array: "u", Offset: -80, Count: 3, Type: "hvector(2,1,16,;bytes(8,;))"}}}
}

// TestRecord: a record of the layer, and one of a checkpoint, come back as they were; any that is cut short, and one of
// another rank, is refused.
func TestRecord(t *testing.T) {
	b := encode(sample())
	got, before, err := decode(b, 1, 3)
	if err != nil || before != nil || !reflect.DeepEqual(got, sample()) {
		t.Errorf("got %+v, %v", got, err)
	}
	for n := range b {
		if _, _, err := decode(b[:n], 1, 3); !errors.Is(err, errBroken) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	if _, _, err := decode(b, 0, 3); err == nil {
		t.Error("the record of another rank was read")
	}
	saved, err := got.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := endpoint.DecodeRecord(saved, 1, 3)
	for i := range got.Boxes {
		got.Boxes[i].Bytes = len(got.Boxes[i].Data)
	}
	if err != nil || !reflect.DeepEqual(again, got) || again.Version != endpoint.RecordVersion {
		t.Errorf("got %+v, want %+v, %v", again, got, err)
	}
	for n := range saved {
		if _, err := endpoint.DecodeRecord(saved[:n], 1, 3); err == nil {
			t.Errorf("cut to %d bytes it was read", n)
		}
	}
	if _, err := endpoint.DecodeRecord(saved, 2, 3); err == nil || !strings.Contains(err.Error(), "rank 1 of 3") {
		t.Errorf("the record of another rank: %v", err)
	}
}

// TestThreads: of several threads each is seen, and the rank waits only if all do.
func TestThreads(t *testing.T) {
	p := newPage(2)
	copy(p.b[CallsAt+CallBytes:], "MPI_Recv\x00")
	p.setU32(atThreads, 1)
	for i, seq := range []uint64{3, 2, 5} {
		at := ThreadsAt + i*ThreadBytes
		p.setU64(at, seq)
		p.setU64(at+ofUsed, 1)
		p.setU32(at+atCall-atSeq, 1)
		p.setU32(at+atWaits-atSeq, 1)
		p.setU32(at+ofWaits, 1)
		p.setU32(at+ofWaits+8, ^uint32(0))
	}
	a := p.Activity()
	if !a.Blocked || a.Every || a.Op != "MPI_Recv" || len(a.Waits) != 1 || a.Waits[0].Source != 1 ||
		len(a.Threads) != 1 || a.Seq != 2+1+3 {
		t.Errorf("two of four are blocked: %+v", a)
	}
	p.setU64(ThreadsAt+ThreadBytes+ofUsed, 0) // it has ended
	p.setU64(atSeq, 1)
	if a = p.Activity(); !a.Every || len(a.Threads) != 2 {
		t.Errorf("all are blocked: %+v", a)
	}
	p.setU32(atThreads, 2)
	if a = p.Activity(); a.Every {
		t.Errorf("there are threads that are not seen: %+v", a)
	}
}

// TestLevel: a rank whose threads have entered fewer collectives is let go on until they have as many, and one of whose
// threads stays in a call is named.
func TestLevel(t *testing.T) {
	pages := []*Page{newPage(2), newPage(2)}
	errs := make(chan error, 2)
	said, heard := make(chan []byte), []chan [][]byte{make(chan [][]byte), make(chan [][]byte)}
	turn := func() { // one of both programs
		for i, p := range pages {
			p.store(atTurns, p.load(atTurns)+1)
			if most := p.load(TargetsAt); p.load(CommsAt) < most {
				p.store(CommsAt, most)
				p.store(atInside, uint64(1-i)) // of rank 0 it is in another call behind it
			}
		}
	}
	go func() {
		for t.Context().Err() == nil {
			turn()
			time.Sleep(20 * time.Microsecond)
		}
	}()
	go func() {
		for {
			all := [][]byte{nil, nil}
			for range all {
				b, ok := <-said
				if !ok {
					return
				}
				all[b[0]] = b[1:]
			}
			heard[0] <- all
			heard[1] <- all
		}
	}()
	for r, p := range pages {
		copy(p.b[CommsAt+24:], "world.1\x00")
		p.setU32(CommsAt+8, SlotLive)
		p.setU32(atComms, 1)
		p.setU32(atThreads, 1)
		p.store(CommsAt, uint64(5-r))
	}
	clients := []*standing{{}, {}}
	level := func() (out []error) {
		for r, p := range pages {
			e := &layer{Page: p, rank: r, client: clients[r]}
			e.exchange = func(_ context.Context, b []byte) ([][]byte, error) {
				said <- append([]byte{byte(r)}, b...)
				all := <-heard[r]
				return [][]byte{bytes.Clone(all[0]), bytes.Clone(all[1])}, nil
			}
			go func() { _, err := e.stop(t.Context(), nil); errs <- err }()
		}
		return append(out, <-errs, <-errs)
	}
	for _, err := range level() {
		if err != nil || pages[1].load(CommsAt) != 5 {
			t.Errorf("got %v, entered %d", err, pages[1].load(CommsAt))
		}
	}
	if clients[0].cuts != 1 || clients[1].cuts != 1 {
		t.Errorf("programs whose threads have stopped are told %d and %d times", clients[0].cuts, clients[1].cuts)
	}
	pages[1].store(CommsAt, 6)
	for _, err := range level() {
		if !errors.Is(err, mpiwrap.ErrDrainIncomplete) || !strings.Contains(err.Error(), "rank 0: another thread") {
			t.Errorf("got %v", err)
		}
	}
	close(said)
}

// TestNoTurn: a rank of one thread that gets no time to run is not said to have another one in a call.
func TestNoTurn(t *testing.T) {
	p := newPage(1)
	p.setU32(atThreads, 1)
	e := &layer{Page: p, client: &standing{}}
	e.exchange = func(_ context.Context, b []byte) ([][]byte, error) { return [][]byte{b}, nil }
	err := e.level(t.Context(), nil)
	if !errors.Is(err, mpiwrap.ErrDrainIncomplete) || !strings.Contains(err.Error(), "rank 0: the rank gets no time") {
		t.Errorf("got %v", err)
	}
}

// standing is a client without a process.
type standing struct {
	record []byte
	loaded []byte
	synced int
	cuts   int
	busy   bool
	fails  error // of Sync
}

func (s *standing) Cut() error               { s.cuts++; return nil }
func (s *standing) Sync(busy bool) error     { s.synced++; s.busy = busy; return s.fails }
func (s *standing) Save() ([]byte, error)    { return s.record, nil }
func (s *standing) Load(record []byte) error { s.loaded = record; return nil }
func (s *standing) Failed(error)             {}

// large is a client that has left a message of more than 2 GiB in the network.
type large struct {
	*standing
	p *Page
}

func (l large) Cut() error { l.p.store(atFull, FullLarge); return nil }

// TestDrain: a rank that has not received all that was sent to it fails on all ranks, one whose mailbox is full, and
// one that has received more.
func TestDrain(t *testing.T) {
	alone := func(_ context.Context, mine []byte) ([][]byte, error) { return [][]byte{mine}, nil }
	p := newPage(1)
	e := New(p, 0, &standing{}, alone)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.setU64(CountsAt, 2)
	p.setU64(CountsAt+8, 1)
	if _, err := e.Drain(ctx); !errors.Is(err, mpiwrap.ErrDrainIncomplete) ||
		!strings.Contains(err.Error(), "1 messages from rank 0") {
		t.Errorf("got %v", err)
	}
	e = New(p, 0, large{&standing{}, p}, alone)
	if _, err := e.Drain(t.Context()); !errors.Is(err, mpiwrap.ErrDrainIncomplete) ||
		!strings.Contains(err.Error(), "more than 2 GiB") {
		t.Errorf("got %v", err)
	}
	given := func(_ context.Context, mine []byte) ([][]byte, error) {
		if len(mine) == 1 { // what it says at the end
			return [][]byte{{0}}, nil
		}
		return [][]byte{mine}, nil
	}
	p.setU64(CountsAt+8, 2)
	e = New(p, 0, &standing{}, program.Exchange(given))
	go func() {
		for ctx := t.Context(); ctx.Err() == nil; {
			p.setU64(atTurns, p.load(atTurns)+1)
		}
	}()
	if _, err := e.Drain(t.Context()); !errors.Is(err, mpiwrap.ErrDrainIncomplete) ||
		!strings.Contains(err.Error(), "rank 0 gave up") {
		t.Errorf("got %v", err)
	}
	e = New(p, 0, &standing{}, alone)
	if s, err := e.Drain(t.Context()); err != nil || s.InFlight || s.AllEnded {
		t.Errorf("got %+v, %v", s, err)
	}
	p.setU64(CountsAt+8, 3)
	if _, err := e.Drain(t.Context()); !errors.Is(err, mpiwrap.ErrDrainIncomplete) ||
		!strings.Contains(err.Error(), "received 1 messages from rank 0 that were not sent through") {
		t.Errorf("got %v", err)
	}
}

// TestSync: a drain waits for operations that end by themselves, and has files and windows synchronized behind them. An
// error is one of all ranks.
func TestSync(t *testing.T) {
	alone := func(_ context.Context, mine []byte) ([][]byte, error) { return [][]byte{mine}, nil }
	p, c := newPage(1), &standing{}
	e := New(p, 0, c, alone)
	p.setU64(atUnended, 1)
	p.setU64(atWindows, 1)
	ended := atomic.Bool{}
	go func(p *Page) {
		for ctx := t.Context(); ctx.Err() == nil; {
			if n := p.load(atTurns); n == 1000 {
				ended.Store(true)
				p.setU64(atUnended, 0)
			}
			p.setU64(atTurns, p.load(atTurns)+1)
		}
	}(p)
	s, err := e.Drain(t.Context())
	if err != nil || !s.Windows || !ended.Load() || c.synced != 0 {
		t.Errorf("got %+v, %v; synchronized %d times", s, err, c.synced)
	}
	p.setU64(atToSync, 1)
	if _, err := e.Drain(t.Context()); err != nil || c.synced != 1 || c.busy {
		t.Errorf("got %v, synchronized %d times", err, c.synced)
	}
	p.setU64(atBusy, 1)
	if _, err := e.Drain(t.Context()); err != nil || c.synced != 2 || !c.busy {
		t.Errorf("busy: got %v, synchronized %d times", err, c.synced)
	}
	c.fails = errors.New("no space")
	if _, err := e.Drain(t.Context()); !errors.Is(err, c.fails) {
		t.Errorf("got %v", err)
	}
	p.setU64(atUnended, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Drain(ctx); !errors.Is(err, mpiwrap.ErrDrainIncomplete) ||
		!strings.Contains(err.Error(), "2 operations that rank 0 has started") {
		t.Errorf("got %v", err)
	}
	other := func(_ context.Context, mine []byte) ([][]byte, error) {
		if len(mine) == 1 && mine[0] <= 1 { // what it says of Sync
			return [][]byte{mine, {0}}, nil
		}
		return [][]byte{mine, mine}, nil
	}
	p, c = newPage(2), &standing{}
	p.setU64(atToSync, 1)
	go func(p *Page) {
		for ctx := t.Context(); ctx.Err() == nil; {
			p.setU64(atTurns, p.load(atTurns)+1)
		}
	}(p)
	if _, err := New(p, 0, c, program.Exchange(other)).Drain(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "rank 1 could not synchronize") {
		t.Errorf("got %v", err)
	}
}

// TestSavedBeforeOthersGoOn: what ranks send behind the drain, while this one still receives, is not in the checkpoint.
func TestSavedBeforeOthersGoOn(t *testing.T) {
	first, later := sample(), sample()
	first.Boxes, first.Receives, first.Requests = first.Boxes[:0], nil, nil
	p, c := newPage(3), &standing{record: encode(first)}
	ctx, exchanges := t.Context(), 0
	e := New(p, 1, c, func(_ context.Context, mine []byte) ([][]byte, error) {
		if exchanges++; exchanges == 2 { // the other ranks get the news that it has drained
			c.record = encode(later)
		}
		return [][]byte{mine, mine, mine}, nil
	})
	go func() {
		for ctx.Err() == nil {
			p.setU64(atTurns, p.load(atTurns)+1)
		}
	}()
	for _, want := range []int{0, len(later.Boxes)} { // the next drain finds them
		if _, err := e.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		b, err := e.SaveMailbox()
		if err != nil {
			t.Fatal(err)
		}
		if r, err := endpoint.DecodeRecord(b, 1, 3); err != nil || len(r.Boxes) != want {
			t.Errorf("got %+v, %v, want %d messages", r, err, want)
		}
	}
}

// TestRefused: what no checkpoint can keep is refused by name, and a record while receives are posted.
func TestRefused(t *testing.T) {
	r := sample()
	b := encode(r)
	binary.LittleEndian.PutUint32(b[28:], 1)
	end := binary.LittleEndian.Uint32(b[36:])
	text := append(binary.LittleEndian.AppendUint32(nil, 4), "what"...)
	b = append(append(append([]byte(nil), b[:end]...), text...), b[end:]...)
	binary.LittleEndian.PutUint32(b[36:], end+uint32(len(text)))
	p := newPage(3)
	c := &standing{record: b}
	e := New(p, 1, c, nil)
	if _, err := e.SaveMailbox(); !errors.Is(err, mpiwrap.ErrPending) || !strings.Contains(err.Error(), ": what") {
		t.Errorf("got %v", err)
	}
	saved, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	p.setU64(atPending, 1)
	if _, err := e.StageMailbox(saved); !errors.Is(err, mpiwrap.ErrPending) {
		t.Errorf("got %v", err)
	}
	p.setU64(atPending, 0)
	apply, err := e.StageMailbox(saved)
	if err != nil {
		t.Fatal(err)
	}
	apply()
	if got, _, err := decode(c.loaded, 1, 3); err != nil || len(got.Boxes) != 2 || e.UnpostedReceives() != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	c.record = encode(r)
	at := bytes.Index(c.record, []byte("\x04\x00\x00\x00left")) - 4 // the flags of the last receive
	c.record[at] = ReceiveBefore
	p.setU64(atUnposted, 1)
	if got := e.UnpostedReceives(); len(got) != 1 || got[0] != r.Receives[1] {
		t.Errorf("not posted again: %+v", got)
	}
}

// TestNoTurnIsNoRest: a rank in which a thread is on its way into a call makes no turn, and what its page says of
// threads is from before.
func TestNoTurnIsNoRest(t *testing.T) {
	p := newPage(1)
	e := &layer{Page: p}
	if r := e.look(t.Context()); r.Inside == "" {
		t.Error("without a turn: the rank is taken to be at rest")
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				p.store(atTurns, p.load(atTurns)+1)
				time.Sleep(20 * time.Microsecond)
			}
		}
	}()
	if r := e.look(t.Context()); r.Inside != "" {
		t.Error("with turns: the rank is taken not to be at rest")
	}
	p.store(atInside, 1)
	if r := e.look(t.Context()); r.Inside == "" {
		t.Error("with a thread inside: the rank is taken to be at rest")
	}
}

// TestHinders: a rank is named for a call that it is in, or for a collective that it has yet to enter.
func TestHinders(t *testing.T) {
	for _, c := range []struct {
		r    round
		want string
	}{
		{round{Entered: map[string]uint64{"world": 3}}, ""},
		{round{Inside: "another thread is in Send", Entered: map[string]uint64{"world": 3}}, "is in Send"},
		{round{Entered: map[string]uint64{"world": 2}}, "not entered a collective on world"},
	} {
		got := c.r.hinders(map[string]uint64{"world": 3})
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%+v: got %q, want %q", c.r, got, c.want)
		}
	}
}
