package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/internal/program"
)

var errGone = errors.New("the program of this rank has ended without hf_finalize: it crashed, was killed, or left")

// rank is a session as its agent sees it: the program.
type rank struct {
	s          *session
	rank, size int
	gathers    bool   // by itself
	group      *group // if it does not, after Meet
	fence      bool   // there is no membarrier
	pages      *pages
	signals    chan os.Signal
	armed      chan struct{} // told when the gate has changed

	mu     sync.Mutex // guards what follows
	arenas map[*byte]*arena
	next   uint32
	loads  []wire.Item // of a restore, for its end
}

// arena is a segment that captures go to.
type arena struct {
	*segment
	id   uint32
	told bool // the client has it
}

var _ program.Program = (*rank)(nil)

func (r *rank) Rank() int                 { return r.rank }
func (r *rank) Size() int                 { return r.size }
func (r *rank) Points() uint64            { return r.pages.count() }
func (r *rank) Signals() <-chan os.Signal { return r.signals }

// Arm stores the gate before the agent loads the points; see NODE.md.
func (r *rank) Arm(armed bool) {
	r.pages.set(wire.GateArmed, armed)
	if !r.fence {
		if err := membarrier(); err != nil { // it worked when the client connected
			r.s.log.Error("holdfast node: no barrier; a checkpoint may not come about", "error", err)
		}
	}
	select {
	case r.armed <- struct{}{}:
	default: // it is told already
	}
}

// Meet gathers nothing from all ranks.
func (r *rank) Meet(ctx context.Context) (missing []int, err error) {
	if r.gathers {
		return nil, r.gather(ctx, make([]byte, r.size), []byte{0})
	}
	r.group, missing, err = r.s.d.hub.meet(ctx, r)
	return missing, err
}

// Allgather is by way of the program, or of this daemon.
func (r *rank) Allgather(all, mine []byte) error {
	if r.gathers {
		return r.gather(context.Background(), all, mine)
	}
	return r.group.gather(r, all, mine)
}

func (r *rank) gather(ctx context.Context, all, mine []byte) error {
	seg, err := newSegment("exchange", len(mine)+len(all))
	if err != nil {
		return err
	}
	copy(seg.bytes, mine)
	m, err := r.s.ask(ctx, wire.TypeExchanged, wire.Exchange(uint64(len(mine))), int(seg.file.Fd()))
	if err == nil && m.Code != 0 {
		err = fmt.Errorf("the program's function for gathering bytes from all ranks failed with code %d", m.Code)
	}
	if err == nil {
		copy(all, seg.bytes[len(mine):])
	}
	return errors.Join(err, seg.close())
}

// Map makes an arena.
func (r *rank) Map(n int) ([]byte, error) {
	seg, err := newSegment(fmt.Sprint("arena-", r.rank), n)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arenas[unsafe.SliceData(seg.bytes)] = &arena{segment: seg, id: r.next}
	r.next++
	return seg.bytes, nil
}

// Unmap ends an arena. The client drops it when it next looks.
func (r *rank) Unmap(b []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := unsafe.SliceData(b)
	a := r.arenas[first]
	if a == nil {
		return fmt.Errorf("unmap an arena that is none")
	}
	delete(r.arenas, first)
	if a.told {
		_ = r.s.conn.write(wire.Drop(a.id)) // a client that has gone keeps nothing
	}
	return a.close()
}

// item finds where shared memory lies, and tells the client of its arena.
func (r *rank) item(m program.Move) (wire.Item, error) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(m.Shared)))
	r.mu.Lock()
	defer r.mu.Unlock()
	for first, a := range r.arenas {
		from := uintptr(unsafe.Pointer(first))
		if at < from || at+uintptr(len(m.Shared)) > from+uintptr(len(a.bytes)) {
			continue
		}
		if !a.told {
			if err := r.s.conn.write(wire.Arena(a.id, uint64(len(a.bytes))), int(a.file.Fd())); err != nil {
				return wire.Item{}, fmt.Errorf("%w (%w)", errGone, err)
			}
			a.told = true
		}
		return wire.Item{Array: m.ID, Arena: a.id, Offset: uint64(at - from), Bytes: uint64(len(m.Shared))}, nil
	}
	return wire.Item{}, fmt.Errorf("array %d: its shared memory is in no arena", m.ID)
}

// Save has the client copy its arrays.
func (r *rank) Save(moves []program.Move) error {
	var items []wire.Item
	for _, m := range moves {
		if len(m.Shared) == 0 {
			continue
		}
		i, err := r.item(m)
		if err != nil {
			return err
		}
		items = append(items, i)
	}
	return r.copy(false, items)
}

func (r *rank) copy(load bool, items []wire.Item) error {
	for some := range slices.Chunk(items, wire.MostItems) {
		if _, err := r.s.ask(context.Background(), wire.TypeCopied, wire.Copy(load, some)); err != nil {
			return err
		}
	}
	return nil
}

// Load is carried out at the end of the restore: until then nothing of the program changes.
func (r *rank) Load(m program.Move) {
	if len(m.Shared) == 0 {
		return
	}
	i, err := r.item(m)
	if err != nil {
		r.s.fail(err) // the program must not go on without its state
		return
	}
	r.loads = append(r.loads, i)
}

// close frees what is left. The Checkpointer is closed.
func (r *rank) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := []error{r.pages.close()}
	for _, a := range r.arenas {
		errs = append(errs, a.close())
	}
	clear(r.arenas)
	return errors.Join(errs...)
}
