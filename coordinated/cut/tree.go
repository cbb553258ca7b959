package cut

import (
	"slices"
)

// Place returns the neighbours of the i-th node in the k-ary tree over n nodes
// that is laid out level by level: parent is -1 for node 0. Callers map nodes to
// ranks.
func Place(i, n, k int) (parent int, children []int) {
	parent = -1
	if i > 0 {
		parent = (i - 1) / k
	}
	for c := i*k + 1; c <= i*k+k && c < n; c++ {
		children = append(children, c)
	}
	return parent, children
}

// answers collects the subtree's replies to a park.
type answers struct {
	own      bool
	answered answered
	min, max uint64
}

// readying tracks which of the subtree is parked.
type readying struct {
	children []readiness
	sent     bool   // the last report to the parent
	version  uint64 // of that report
}

type readiness struct {
	yes     bool
	version uint64
}

func (r *readying) all() bool {
	return !slices.ContainsFunc(r.children, func(c readiness) bool { return !c.yes })
}

// voting collects the subtree's votes of one round.
type voting struct {
	round    uint64
	answered answered
	yes      bool
	sum      uint64
}

// answered remembers which children have replied, by index, so that a reply that
// comes twice counts once.
type answered []bool

func (m *Machine) noneAnswered() answered { return make(answered, len(m.cfg.Children)) }

// first notes a reply and reports whether it is the first of its sender. Without a question there is none.
func (h answered) first(child int) bool {
	if child >= len(h) || h[child] {
		return false
	}
	h[child] = true
	return true
}

func (h answered) all() bool { return !slices.Contains(h, false) }
