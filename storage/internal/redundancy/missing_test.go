package redundancy

import (
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// TestMissingParts: what a shard cannot be computed without is named, with its node.
func TestMissingParts(t *testing.T) {
	m := &format.Manifest{Epoch: 7, Level: format.LevelParity, Size: 4, Data: 2, Parity: 2}
	for r, node := range []string{"a", "b", "c", "d"} {
		m.Shards = append(m.Shards, format.ShardInfo{Rank: r, Node: node})
	}
	lost := map[int]bool{0: true, 2: true, 3: true} // ranks whose nodes are gone, with the rows there
	err := Computable(m, 0, func(rank int) bool { return !lost[rank] }, func(id format.RowID) bool {
		st, err := StripeIn(m, id.Rank)
		if err != nil {
			t.Fatal(err)
		}
		return !lost[st.Group[st.Row(id.J)]]
	})
	if err == nil || strings.Count(err.Error(), "on node") != 2 {
		t.Fatalf("got %v, want two parts to be missing", err)
	}
	for _, want := range []string{"epoch 7 at level parity: the shard of rank 0", "1 of the 2 parts needed",
		"on node c", "on node d", "start the job where 1 of them can be read"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}
}
