package redundancy

import (
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// notComputable names the parts of a stripe that are not to be had, so that its segment d cannot be computed; has reports
// for the others that they are. The error wraps kind.
func notComputable(m *format.Manifest, st Stripe, d int, kind error, has func(i int) bool) error {
	have := 0
	var parts []string
	for i := range st.K + st.M {
		switch row := i - st.K; {
		case i == d:
		case has(i):
			have++
		case row < 0:
			rank := st.Group[st.data(i)]
			parts = append(parts, fmt.Sprintf("the shard of rank %d on node %s", rank, m.Shards[rank].Node))
		default:
			rank := st.Group[st.Row(row)]
			parts = append(parts, fmt.Sprintf("parity row %d of rank %d on node %s", row, rank, m.Shards[rank].Node))
		}
	}
	return fmt.Errorf("epoch %d at level %s: the shard of rank %d cannot be computed from %d of the %d parts needed; "+
		"missing or damaged: %s; start the job where %d of them can be read: %w", m.Epoch, format.LevelParity,
		st.Group[st.data(d)], have, st.K, strings.Join(parts, ", "), st.K-have, kind)
}
