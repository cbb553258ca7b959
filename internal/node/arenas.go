package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
)

// arenas are the memory that a Checkpointer shares with its client: program.Memory.
type arenas struct {
	s *session

	mu       sync.Mutex // guards the fields below
	list     map[*byte]*arena
	loads    []load    // of a restore, for its end
	previous *retained // by an earlier start, until Forget; its arenas are in the list

	forNext *storage.MemoryShard // for a restart of the next start; nil: nothing
}

// arena is a segment that captures go to, or came to in an earlier start.
type arena struct {
	*segment
	id     uint32
	sent   bool // the client has it
	sealed bool // no process can write to it
}

// load has the data of an array that a restore has read.
type load struct {
	*program.Array
	item wire.Item
}

func newArenas(s *session, previous *retained) *arenas {
	r := &arenas{s: s, list: map[*byte]*arena{}, previous: previous}
	if previous != nil {
		for _, seg := range previous.segments {
			r.add(&arena{segment: seg, sealed: true})
		}
	}
	return r
}

// add gives an arena its number; mu is held, or r is not shared yet.
func (r *arenas) add(a *arena) {
	a.id = r.s.nextArena.Add(1) - 1
	r.list[unsafe.SliceData(a.bytes)] = a
}

// loaded has the client copy the data that a restore has read.
func (r *arenas) loaded() error {
	var items []wire.Item
	for _, l := range r.loads {
		items = append(items, l.item)
	}
	r.loads = nil
	return r.copy(true, items)
}

// Map makes an arena.
func (r *arenas) Map(n int) ([]byte, error) {
	seg, err := newSegment("arena", n)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(&arena{segment: seg})
	return seg.bytes, nil
}

// Unmap ends an arena. The client drops it when it next looks.
func (r *arenas) Unmap(b []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := unsafe.SliceData(b)
	a := r.list[first]
	if a == nil {
		return fmt.Errorf("unmap an arena that was never mapped")
	}
	return r.drop(first, a)
}

// drop frees an arena; mu is held.
func (r *arenas) drop(first *byte, a *arena) error {
	delete(r.list, first)
	if a.sent {
		_ = r.s.conn.write(wire.Drop(a.id)) // a disconnected client has nothing mapped
	}
	return a.close()
}

// Previous returns the epoch that the previous start left in memory, or nil.
func (r *arenas) Previous() *storage.MemoryShard {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.previous == nil {
		return nil
	}
	return r.previous.shard
}

// unmapPrevious has the client unmap the memory of the previous start, and reports whether there is any.
func (r *arenas) unmapPrevious() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.list {
		if a.sealed && a.sent {
			a.sent = false
			_ = r.s.conn.write(wire.Drop(a.id)) // a disconnected client has nothing mapped
		}
	}
	return r.previous != nil
}

// FreePrevious frees that memory. The client drops the arenas when it next looks.
func (r *arenas) FreePrevious() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.previous == nil {
		return
	}
	r.previous.shard.Forget()
	r.previous = nil
	for first, a := range r.list {
		if !a.sealed {
			continue
		}
		if err := r.drop(first, a); err != nil {
			r.s.log.Warn("holdfast node: cannot free shared memory", "error", err)
		}
	}
}

// item finds the place of shared memory, and announces its arena to the client.
func (r *arenas) item(m program.Move) (wire.Item, error) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(m.Shared)))
	r.mu.Lock()
	defer r.mu.Unlock()
	for first, a := range r.list {
		from := uintptr(unsafe.Pointer(first))
		if at < from || at+uintptr(len(m.Shared)) > from+uintptr(len(a.bytes)) {
			continue
		}
		if err := r.send(a); err != nil {
			return wire.Item{}, err
		}
		return wire.Item{Array: m.ID, Arena: a.id, Offset: uint64(at - from), Bytes: uint64(len(m.Shared))}, nil
	}
	return wire.Item{}, fmt.Errorf("array %d: its shared memory lies outside every arena", m.ID)
}

// send passes an arena to the client, unless the client has it; mu is held.
func (r *arenas) send(a *arena) error {
	if a.sent {
		return nil
	}
	if err := r.s.conn.write(wire.Arena(a.id, uint64(len(a.bytes)), a.sealed), int(a.file.Fd())); err != nil {
		return fmt.Errorf("%w (%w)", errDisconnected, err)
	}
	a.sent = true
	return nil
}

// sendAll passes all arenas to the client, which maps them while it waits for something else.
func (r *arenas) sendAll() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.list {
		if err := r.send(a); err != nil {
			return err
		}
	}
	return nil
}

// Save has the client copy its arrays. Those of devices may arrive after it returns.
func (r *arenas) Save(moves []program.Move) (arrived func(ctx context.Context) error, err error) {
	var items []wire.Item
	for _, m := range moves {
		if len(m.Shared) == 0 {
			continue
		}
		i, err := r.item(m)
		if err != nil {
			return nil, err
		}
		i.Late = m.Late && r.s.shadows
		items = append(items, i)
	}
	lateLast(items)
	if err := r.copy(false, items); err != nil {
		return nil, err
	}
	if a := r.s.claimLate(); a != nil {
		return a.wait, nil
	}
	return nil, nil
}

// lateLast sorts items that may be late behind the others, and marks only items of the last COPY as late: the client
// has one late copy under way.
func lateLast(items []wire.Item) {
	slices.SortStableFunc(items, func(a, b wire.Item) int {
		switch {
		case a.Late == b.Late:
			return cmp.Compare(a.Bytes, b.Bytes)
		case a.Late:
			return 1
		}
		return -1
	})
	for i := range max(len(items)-1, 0) / wire.MostItems * wire.MostItems {
		items[i].Late = false
	}
}

func (r *arenas) copy(load bool, items []wire.Item) error {
	for some := range slices.Chunk(items, wire.MostItems) {
		m, err := r.s.ask(context.Background(), wire.TypeCopied, wire.Copy(load, some))
		if err != nil {
			return err
		}
		if m.Code != 0 {
			name := "an array"
			if a := r.s.arrays[m.Array-1]; a != nil {
				name = fmt.Sprintf("%q", a.name)
			}
			return fmt.Errorf("%w %s: %w", errCannotCopy, name, syscall.Errno(m.Code))
		}
		late := slices.ContainsFunc(some, func(i wire.Item) bool { return i.Late })
		if m.Flags&wire.CopiedLater != 0 && !late {
			err := fmt.Errorf("%w: COPIED announces late bytes, but none may be late", wire.ErrMalformed)
			r.s.fail(err)
			return err
		}
	}
	return nil
}

var errCannotCopy = errors.New("the program cannot copy")

// Load is carried out at the end of the restore: until then nothing of the program changes.
func (r *arenas) Load(m program.Move) {
	if len(m.Shared) == 0 {
		if m.AnySize { // it becomes empty
			r.loads = append(r.loads, load{m.Array, wire.Item{Array: m.ID, Arena: wire.NoArena}})
		}
		return
	}
	i, err := r.item(m)
	if err != nil {
		r.s.fail(err) // the program must not go on without its state
		return
	}
	r.loads = append(r.loads, load{m.Array, i})
}

// close frees all arenas. The Checkpointer is closed.
func (r *arenas) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, a := range r.list {
		errs = append(errs, a.close())
	}
	clear(r.list)
	return errors.Join(errs...)
}
