package cut

import (
	"hash/fnv"
	"maps"
	"slices"
)

// Coll is one rank's count for one communicator. A communicator that the rank has freed stays listed, with the freeing
// counted, until the next cut: the other members must free it too before the counts agree.
type Coll struct {
	Comm    string // the communicator's name, the same on all members
	Leader  bool   // this rank is the communicator's rank 0
	Size    int    // number of members
	Entered uint64 // collectives entered since start, non-blocking ones included
}

// Standing has the progress of a communicator's members with its collectives, as far as a subtree knows.
type Standing struct {
	Comm    string
	Size    int    // members of the communicator
	Members int    // members that are counted here
	Min     uint64 // fewest and
	Max     uint64 // most collectives entered by those counted
}

// complete reports that all members are in the subtree: no other rank has news of the communicator, or needs them.
func (s Standing) complete() bool { return s.Members >= s.Size }

// reach joins the answers of a subtree about one communicator.
type reach struct {
	Standing
	below []int // children, by index, whose subtrees hold some members but not all
}

// reaches is that for all communicators, by name.
type reaches map[string]*reach

// add counts the members in a set of ranks; child is the index of the child
// below which they are, -1 for this rank.
func (rs reaches) add(child int, s Standing) {
	r := rs[s.Comm]
	if r == nil {
		r = &reach{Standing: s}
		rs[s.Comm] = r
	} else {
		r.Members += s.Members
		r.Min = min(r.Min, s.Min)
		r.Max = max(r.Max, s.Max)
	}
	if child >= 0 {
		r.below = append(r.below, child)
	}
}

// above lists, in order of name, the communicators for the ranks above: those with members elsewhere.
func (rs reaches) above() []Standing {
	var out []Standing
	for _, name := range slices.Sorted(maps.Keys(rs)) {
		if s := rs[name].Standing; !s.complete() {
			out = append(out, s)
		}
	}
	return out
}

// uneven lists the communicators whose members are all in this subtree and not equally far, in order of name. The rank
// that covers them informs those below.
func (m *Machine) uneven() []Standing {
	var out []Standing
	for _, name := range slices.Sorted(maps.Keys(m.reach)) {
		if r := m.reach[name]; r.complete() && r.Min != r.Max {
			out = append(out, r.Standing)
		}
	}
	return out
}

// covers reports whether all members of a communicator are in this subtree.
func (m *Machine) covers(comm string) bool {
	r := m.reach[comm]
	return r != nil && r.complete()
}

// reaches reports whether members of a communicator may be below the i-th
// child. They may be anywhere if the communicator is younger than the answers.
func (m *Machine) reaches(comm string, i int) bool {
	r := m.reach[comm]
	return r == nil || slices.Contains(r.below, i)
}

// maxima is the most collectives that any rank is known to have entered, by
// communicator. It only grows during an epoch.
type maxima map[string]uint64

// raise takes in the knowledge of others and returns the news in it.
func (m maxima) raise(ns []Standing) []Standing {
	var news []Standing
	for _, n := range ns {
		if n.Max > m[n.Comm] {
			m[n.Comm] = n.Max
			news = append(news, n)
		}
	}
	return news
}

// raiseOwn does the same with one rank's own counts.
func (m maxima) raiseOwn(colls []Coll) []Standing {
	var news []Standing
	for _, c := range colls {
		if c.Entered > m[c.Comm] {
			m[c.Comm] = c.Entered
			news = append(news, Standing{Comm: c.Comm, Size: c.Size, Members: 1, Min: c.Entered, Max: c.Entered})
		}
	}
	return news
}

// fingerprint returns a sum over a rank's communicators that cancels out over all ranks if and only if, up to a
// collision of the 64-bit hash, all members of each communicator have one count: the leader adds the sum that the
// others subtract. So a vote carries eight bytes instead of all counts.
func fingerprint(colls []Coll) uint64 {
	var sum uint64
	for _, c := range colls {
		h := mix(c.Comm, c.Entered)
		if c.Leader {
			sum += h * uint64(c.Size-1)
		} else {
			sum -= h
		}
	}
	return sum
}

// mix hashes a name and a count; the multiplications are the finaliser of
// splitmix64, without which neighbouring counts would cancel in pairs.
func mix(comm string, n uint64) uint64 {
	f := fnv.New64a()
	_, _ = f.Write([]byte(comm)) // a hash never fails to write
	h := f.Sum64() + n*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
