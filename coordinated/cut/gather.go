package cut

import (
	"maps"
	"sort"
)

// Gather collects one blob from every rank at rank 0, for a stage of an epoch: the votes of a commit, the reports of a
// failure. Like Machine it is pure: the caller sends the messages that Add returns.
type Gather struct {
	children int
	open     map[stage]*gathering
}

type stage struct {
	epoch Epoch
	name  string
}

type gathering struct {
	answered map[int]bool // by rank
	blobs    []Blob
}

// NewGather returns a collector for a rank with that many children in the tree.
func NewGather(children int) *Gather {
	return &Gather{children: children, open: map[stage]*gathering{}}
}

// Add takes in the blobs of the rank itself (from is its own rank) or of a
// child's subtree. When the subtree is complete it returns the message for the
// parent, blobs in order of rank, and true; rank 0 keeps it instead.
func (g *Gather) Add(from int, epoch Epoch, name string, blobs []Blob) (Message, bool) {
	key := stage{epoch, name}
	q := g.open[key]
	if q == nil {
		q = &gathering{answered: map[int]bool{}}
		g.open[key] = q
	}
	if q.answered[from] {
		return Message{}, false
	}
	q.answered[from] = true
	q.blobs = append(q.blobs, blobs...)
	if len(q.answered) <= g.children {
		return Message{}, false
	}
	delete(g.open, key)
	sort.SliceStable(q.blobs, func(i, j int) bool { return q.blobs[i].Rank < q.blobs[j].Rank })
	return Message{Kind: KindGather, Epoch: epoch, Stage: name, Blobs: q.blobs}, true
}

// Abandon ends an incomplete collection, and returns its blobs.
func (g *Gather) Abandon(epoch Epoch, name string) []Blob {
	key := stage{epoch, name}
	q := g.open[key]
	if q == nil {
		return nil
	}
	delete(g.open, key)
	return q.blobs
}

// Forget drops the blobs of epochs before e: those were given up.
func (g *Gather) Forget(e Epoch) {
	maps.DeleteFunc(g.open, func(key stage, _ *gathering) bool { return key.epoch < e })
}
