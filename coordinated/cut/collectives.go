package cut

import (
	"hash/fnv"
	"sort"
)

// Coll is one rank's own count for one communicator.
type Coll struct {
	Comm    string // the communicator's name, the same on all members
	Leader  bool   // this rank is rank 0 of it
	Size    int    // number of members
	Entered uint64 // collectives entered since start, non-blocking ones included
}

// standings merges what is known of communicators, by name.
type standings map[string]Standing

// add counts one rank's own numbers.
func (s standings) add(colls []Coll) {
	for _, c := range colls {
		s.join(Standing{Comm: c.Comm, Size: c.Size, Members: 1, Min: c.Entered, Max: c.Entered})
	}
}

// join adds the standing of a disjoint set of ranks.
func (s standings) join(n Standing) {
	old, ok := s[n.Comm]
	if !ok {
		s[n.Comm] = n
		return
	}
	old.Members += n.Members
	old.Min = min(old.Min, n.Min)
	old.Max = max(old.Max, n.Max)
	s[n.Comm] = old
}

// open lists, in order of name, the communicators that are not known to be
// level on all their members. Level ones interest nobody above.
func (s standings) open() []Standing {
	var out []Standing
	for _, n := range s {
		if n.Members < n.Size || n.Min != n.Max {
			out = append(out, n)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Comm < out[j].Comm })
	return out
}

// maxima is the most collectives that any rank is known to have entered, by
// communicator. It only grows during an epoch.
type maxima map[string]uint64

// raise takes in what others know and returns what was news.
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

// fingerprint is a sum over a rank's communicators that cancels out over all
// ranks if and only if, up to a collision of the 64-bit hash, every
// communicator is known to all of its members with one count: the leader adds
// what the others subtract. It lets a vote carry eight bytes instead of all
// counts.
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
