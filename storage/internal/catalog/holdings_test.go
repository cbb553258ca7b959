package catalog

import (
	"bytes"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

func FuzzHoldings(f *testing.F) {
	f.Add(encodeHoldings([]Holding{{Level: format.LevelPartner, Epoch: 7, Shards: []int{1},
		Rows: []format.RowID{{Rank: 2, J: 1}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if list, err := decodeHoldings(0, b); err == nil && !bytes.Equal(encodeHoldings(list), b) {
			t.Error("holdings do not encode to themselves")
		}
	})
}
