package redundancy

import (
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// MissingError says which parts a shard cannot be computed without.
type MissingError struct {
	Epoch      format.Epoch
	Rank       int // whose shard it is
	Have, Need int // parts: any Need of the stripe do
	Parts      []MissingPart
	Err        error
}

// MissingPart is a part of a stripe that is not to be had, and who has it.
type MissingPart struct {
	Row  int // of parity; -1: it is the rank's shard
	Rank int
	Node string
}

// String names the part, the rank and the node.
func (p MissingPart) String() string {
	if p.Row < 0 {
		return fmt.Sprintf("the shard of rank %d on node %s", p.Rank, p.Node)
	}
	return fmt.Sprintf("parity row %d of rank %d on node %s", p.Row, p.Rank, p.Node)
}

// Error names the parts and where they were, and says what would help.
func (e *MissingError) Error() string {
	var parts []string
	for _, p := range e.Parts {
		parts = append(parts, p.String())
	}
	return fmt.Sprintf("epoch %d at level %s: the shard of rank %d cannot be computed from %d of the %d parts needed; "+
		"missing or damaged: %s; start the job where %d of them can be read", e.Epoch, format.LevelParity, e.Rank,
		e.Have, e.Need, strings.Join(parts, ", "), e.Need-e.Have)
}

// Unwrap returns what kind of failure it is.
func (e *MissingError) Unwrap() error { return e.Err }

// missing lists the parts of a stripe but d that has says are not to be had.
func missing(m *format.Manifest, st Stripe, d int, has func(i int) bool) (list []MissingPart) {
	for i := range st.K + st.M {
		if i == d || has(i) {
			continue
		}
		p := MissingPart{Row: -1}
		if i < st.K {
			p.Rank = st.Group[st.data(i)]
		} else {
			p.Row = i - st.K
			p.Rank = st.Group[st.Row(p.Row)]
		}
		p.Node = m.Shards[p.Rank].Node
		list = append(list, p)
	}
	return list
}
