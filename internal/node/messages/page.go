// Package messages reads and drains the messages of a program in another process. libholdfast-mpi, between the program
// and its MPI, counts them in a page of shared memory, drains them at a cut, and takes back the messages of a
// checkpoint. docs/internals/MESSAGES.md describes page and record; lib/common/messages.h has the same for C.
package messages

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
)

// Numbers of the page and of the record.
const (
	PageMagic     = 0x504d4648
	PageVersion   = 3
	RecordMagic   = 0x524d4648
	RecordVersion = 2
	MostWaits     = 1024
	MostThreads   = 64
	ThreadWaits   = 64
	MostCalls     = 640
	MostComms     = 1024
	CallBytes     = 32
	CommBytes     = 104
	WaitsAt       = 192
	CallsAt       = 16576
	CommsAt       = 37056
	ThreadsAt     = 168128
	ThreadBytes   = 1056
	TargetsAt     = 234656
	CountsAt      = 242848
	SlotBytes     = 128
	WaitBytes     = 16
	MostMet       = 64
	MetBytes      = 256

	WaitSend       = 1
	WaitTaken      = 2
	CallAll        = 1
	CallCollective = 2
	CallMore       = 4
	SlotLive       = 1
	SlotFreed      = 2
	FullLarge      = 2
	NoMember       = 1<<32 - 1

	ReceiveCame   = 1
	ReceiveBefore = 2

	RequestStarted = 1
)

// Offsets of the page's fields.
const (
	atTurns    = 16
	atMails    = 24
	atBytes    = 32
	atPending  = 40
	atLimit    = 48
	atFull     = 56
	atPolls    = 64
	atPolled   = 72
	atSeq      = 88
	atCall     = 96
	atFlags    = 100
	atWaits    = 104
	atComm     = 108
	atChanges  = 112
	atComms    = 120
	atThreads  = 124
	atUnposted = 128
	atUnended  = 136
	atWindows  = 144
	atToSync   = 152
	atBusy     = 160
	atInside   = 168
)

// Offsets of a thread's fields.
const (
	ofUsed  = 24
	ofWaits = 32
)

// Bytes returns the size of the page of a rank in a world of size ranks.
func Bytes(size int) int { return CountsAt + 16*size + 4*MostComms*size }

// Page is that of one rank. The program writes it at any time: nothing in it is trusted. All methods may be called by
// any goroutine.
type Page struct {
	b    []byte
	size int
}

// NewPage returns the page in b, of Bytes(size) bytes.
func NewPage(b []byte, size int) *Page { return &Page{b[:Bytes(size)], size} }

func (p *Page) word(at int) *uint64    { return (*uint64)(unsafe.Pointer(&p.b[at])) }
func (p *Page) load(at int) uint64     { return atomic.LoadUint64(p.word(at)) }
func (p *Page) store(at int, v uint64) { atomic.StoreUint64(p.word(at), v) }
func (p *Page) u32(at int) uint32      { return atomic.LoadUint32((*uint32)(unsafe.Pointer(&p.b[at]))) }
func (p *Page) i32(at int) int         { return int(int32(p.u32(at))) }

// sent and received are those to and from a rank of the world.
func (p *Page) sent(rank int) uint64     { return p.load(CountsAt + 8*rank) }
func (p *Page) received(rank int) uint64 { return p.load(CountsAt + 8*(p.size+rank)) }

// name is text in n bytes.
func (p *Page) name(at, n int) string {
	b := bytes.Clone(p.b[at : at+n])
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return string(b)
}

// settled calls read for fields that the program changes between two values of the counter at, and reports whether read
// saw one state. odd allows an odd counter.
func (p *Page) settled(at int, odd bool, read func(count uint64)) bool {
	for range 100 {
		n := p.load(at)
		if n%2 == 1 && !odd {
			continue
		}
		read(n)
		if p.load(at) == n {
			return true
		}
	}
	return false
}

// comm returns the name of a communicator by its number, and the members that messages on it come from.
func (p *Page) comm(slot int) (name string, members []int) {
	if slot < 0 || slot >= MostComms {
		return "", nil
	}
	at := CommsAt + slot*SlotBytes
	n := min(int(p.u32(at+16)), p.size)
	for i := range n {
		member := p.u32(CountsAt + 16*p.size + 4*(slot*p.size+i))
		if member == NoMember {
			break
		}
		members = append(members, min(int(member), p.size-1))
	}
	return p.name(at+24, CommBytes), members
}

func (p *Page) wait(at int) endpoint.Wait {
	w := endpoint.Wait{Source: p.i32(at), Tag: p.i32(at + 4), Send: p.u32(at+12)&WaitSend != 0,
		Taken: p.u32(at+12)&WaitTaken != 0}
	var members []int
	w.Comm, members = p.comm(p.i32(at + 8))
	if w.Source >= p.size || w.Source < -1 {
		w.Source = -1
	}
	if w.Send {
		w.Peer = w.Source
	} else if w.Source < 0 {
		w.Members = members
	}
	return w
}

// call returns the activity of a thread: its state is at the offset at, its waits at the offset waits.
func (p *Page) call(at, waits, most int) (a endpoint.Activity) {
	ok := p.settled(at, true, func(seq uint64) {
		a = endpoint.Activity{Seq: seq/2 + seq%2, Blocked: seq%2 == 1}
		if !a.Blocked {
			return
		}
		of := at - atSeq
		if call := int(p.u32(of + atCall)); call < MostCalls {
			a.Op = p.name(CallsAt+call*CallBytes, CallBytes)
		}
		flags := p.u32(of + atFlags)
		a.All, a.Collective, a.More = flags&CallAll != 0, flags&CallCollective != 0, flags&CallMore != 0
		a.Comm, _ = p.comm(p.i32(of + atComm))
		for i := range min(int(p.u32(of+atWaits)), most) {
			a.Waits = append(a.Waits, p.wait(waits+i*WaitBytes))
		}
	})
	if !ok { // it goes from call to call
		return endpoint.Activity{Seq: p.load(at)/2 + 1}
	}
	return a
}

// Activity returns the call of the first thread that is blocked, with those of the other blocked threads.
func (p *Page) Activity() endpoint.Activity {
	a := p.call(atSeq, WaitsAt, MostWaits)
	a.Every = a.Blocked && p.u32(atThreads) <= 1
	for i := 0; i < MostThreads-1 && p.Concurrent(); i++ {
		at := ThreadsAt + i*ThreadBytes
		if p.load(at+ofUsed) == 0 && p.load(at) == 0 {
			break // no thread has had this place, nor those behind it
		}
		t := p.call(at, at+ofWaits, ThreadWaits)
		a.Seq += t.Seq
		switch {
		case p.load(at+ofUsed) == 0:
		case !t.Blocked:
			a.Every = false
		case !a.Blocked:
			t.Seq, t.Threads = a.Seq, a.Threads
			a = t
		default:
			a.Threads = append(a.Threads, t)
		}
	}
	return a
}

// Polling returns the wait of the latest test or probe that found nothing, and the number of such polls.
func (p *Page) Polling() (last endpoint.Wait, polls uint64) {
	p.settled(atPolls, true, func(n uint64) { last, polls = p.wait(atPolled), n })
	return last, polls
}

// Collectives lists the communicators in order of creation.
func (p *Page) Collectives() []endpoint.Collective {
	type entry struct {
		order uint32
		endpoint.Collective
	}
	var list []entry
	p.settled(atChanges, false, func(uint64) {
		list = list[:0]
		for i := range min(int(p.u32(atComms)), MostComms) {
			at := CommsAt + i*SlotBytes
			if state := p.u32(at + 8); state == SlotLive || state == SlotFreed {
				list = append(list, entry{p.u32(at + 20), endpoint.Collective{Comm: p.name(at+24, CommBytes),
					Leader: min(int(p.u32(at+12)), p.size-1), Size: int(p.u32(at + 16)), Entered: p.load(at)}})
			}
		}
	})
	slices.SortFunc(list, func(a, b entry) int { return int(a.order) - int(b.order) })
	out := make([]endpoint.Collective, len(list))
	for i := range list {
		out[i] = list[i].Collective
	}
	return out
}

// Concurrent reports whether several threads may call MPI.
func (p *Page) Concurrent() bool { return p.u32(atThreads) != 0 }

func (p *Page) entered() map[string]uint64 {
	out := map[string]uint64{}
	for _, c := range p.Collectives() {
		out[c.Comm] = c.Entered
	}
	return out
}

// letEnter lets stopped threads enter as many collectives as other ranks have entered.
func (p *Page) letEnter(most map[string]uint64) {
	for i := range min(int(p.u32(atComms)), MostComms) {
		at := CommsAt + i*SlotBytes
		if n := most[p.name(at+24, CommBytes)]; n > 0 && p.u32(at+8) != 0 {
			p.store(TargetsAt+8*i, n)
		}
	}
}

// sentTo writes how many messages the rank has sent to each that it has sent any, for the ranks that drain.
func (p *Page) sentTo() (b []byte) {
	for r := range p.size {
		if n := p.sent(r); n > 0 {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(r)), n)
		}
	}
	return b
}

// sentBy finds the number of messages for a rank in the bytes of sentTo.
func sentBy(b []byte, rank int) (n uint64, err error) {
	for len(b) > 0 {
		r, k := binary.Uvarint(b)
		v, l := binary.Uvarint(b[max(k, 0):])
		if k <= 0 || l <= 0 {
			return 0, fmt.Errorf("the numbers of messages that a rank has sent are broken")
		}
		if int(r) == rank {
			return v, nil
		}
		b = b[k+l:]
	}
	return 0, nil
}
