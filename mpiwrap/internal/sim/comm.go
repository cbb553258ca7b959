package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

type comm struct {
	h       driver.Handle
	members []int // world ranks
	slots   map[string]*slot
}

func (w *World) newComm(members []int) *comm {
	c := &comm{h: w.handle(), members: members, slots: map[string]*slot{}}
	w.comms[c.h] = c
	return c
}

// World returns the communicator of all ranks.
func (r *rank) World() driver.Handle { return 1 }

// CommRank returns the caller's rank in c and the size of c.
func (r *rank) CommRank(c driver.Handle) (int, int) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	m := r.w.comms[c]
	return slices.Index(m.members, r.id), len(m.members)
}

// Dup makes a communicator of the same ranks.
func (r *rank) Dup(c driver.Handle) (driver.Handle, error) {
	return r.Split(c, 0, 0)
}

// Split makes one communicator per color, ranked by key.
func (r *rank) Split(c driver.Handle, color, key int) (driver.Handle, error) {
	return r.create(c, "split", []int{color, key}, func(s *slot, m *comm) {
		type entry struct{ color, key, rank int }
		var all []entry
		for i := range m.members {
			v := s.extra[i]
			if v[0] != driver.Undefined {
				all = append(all, entry{v[0], v[1], i})
			}
		}
		slices.SortFunc(all, func(a, b entry) int {
			return cmp.Or(cmp.Compare(a.color, b.color), cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank))
		})
		for i := 0; i < len(all); {
			j := i
			var members []int
			for ; j < len(all) && all[j].color == all[i].color; j++ {
				members = append(members, m.members[all[j].rank])
			}
			n := r.w.newComm(members)
			for ; i < j; i++ {
				s.handles[all[i].rank] = n.h
			}
		}
	})
}

// SplitNode groups the ranks that share memory: here all of them.
func (r *rank) SplitNode(c driver.Handle, key int) (driver.Handle, error) {
	return r.Split(c, 0, key)
}

// Create makes a communicator of the listed ranks; every rank of c calls it.
func (r *rank) Create(c driver.Handle, ranks []int32) (driver.Handle, error) {
	list := make([]int, len(ranks))
	for i, v := range ranks {
		list[i] = int(v)
	}
	return r.create(c, "create", list, func(s *slot, m *comm) {
		for i := range m.members {
			if s.handles[i] != 0 || !slices.Contains(s.extra[i], i) {
				continue
			}
			var members []int
			for _, v := range s.extra[i] {
				members = append(members, m.members[v])
			}
			n := r.w.newComm(members)
			for _, v := range s.extra[i] {
				s.handles[v] = n.h
			}
		}
	})
}

// CreateGroup makes a communicator of the listed ranks; only they call it.
func (r *rank) CreateGroup(c driver.Handle, ranks []int32, tag int) (driver.Handle, error) {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.comms[c]
	key := fmt.Sprint("group", tag, ranks)
	s := m.slots[key]
	if s == nil {
		s = newSlot(len(m.members))
		m.slots[key] = s
	}
	s.arrived++
	if s.arrived == len(ranks) {
		var members []int
		for _, v := range ranks {
			members = append(members, m.members[v])
		}
		s.handles[0] = w.newComm(members).h
		delete(m.slots, key)
		w.wakeAll()
	}
	err := r.await(func() bool { return s.handles[0] != 0 },
		func() string { return fmt.Sprintf("CreateGroup(tag %d)", tag) })
	return s.handles[0], err
}

// FreeComm forgets nothing: a handle is a few bytes and other ranks may still
// use theirs.
func (r *rank) FreeComm(driver.Handle) error { return nil }

// create runs a collective construction: the last rank to arrive builds.
func (r *rank) create(c driver.Handle, what string, arg []int, build func(*slot, *comm)) (driver.Handle, error) {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := r.dead(); err != nil {
		return 0, err
	}
	m := w.comms[c]
	s, me, err := r.enterSlot(m, what)
	if err != nil {
		return 0, err
	}
	s.extra[me] = arg
	if s.arrived == len(m.members) && s.err == nil {
		build(s, m)
	}
	w.wakeAll()
	err = r.await(func() bool { return s.arrived == len(m.members) || s.err != nil },
		func() string { return what })
	if err == nil {
		err = s.err
	}
	return s.handles[me], err
}
