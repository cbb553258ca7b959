package redundancy

import (
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Holding says what one rank's directory of a level has of an epoch.
type Holding struct {
	From   int // rank
	Level  string
	Epoch  format.Epoch
	Id     [16]byte // of the manifest; zero: it has none, so what is there may be of a given-up attempt
	Shards []int    // ranks whose shards lie there
	Rows   []RowID  // parity rows that lie there
}

// RowID names row j of the parity that a rank encoded.
type RowID struct{ Rank, J int }

func holdingsFields(f format.Fields, list *[]Holding) {
	format.List(f, list, 34, func(h *Holding) {
		f.Str(&h.Level)
		f.Epoch(&h.Epoch)
		f.Sum(&h.Id)
		format.List(f, &h.Shards, 4, f.Int)
		format.List(f, &h.Rows, 8, func(r *RowID) {
			f.Int(&r.Rank)
			f.Int(&r.J)
		})
	})
}

// EncodeHoldings makes of them what other ranks learn.
func EncodeHoldings(list []Holding) []byte {
	var e format.Encoder
	holdingsFields(format.Appending(&e), &list)
	return e.B
}

func decodeHoldings(from int, b []byte) (list []Holding, err error) {
	d := &format.Decoder{B: b}
	holdingsFields(format.Taking(d), &list)
	if !d.Done() {
		return nil, fmt.Errorf("holdings of rank %d are damaged", from)
	}
	for i := range list {
		list[i].From = from
	}
	return list, nil
}

// Known is what other ranks' directories have, as they have told.
type Known struct {
	mu   sync.Mutex
	list []Holding // guarded by mu
}

// Learn takes note of what a rank's directories have. It replaces what was known of that rank.
func (k *Known) Learn(from int, holdings []byte) error {
	list, err := decodeHoldings(from, holdings)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = append(slices.DeleteFunc(k.list, func(h Holding) bool { return h.From == from }), list...)
	return nil
}

// Holders lists the ranks that have what match wants, of e at a level.
func (k *Known) Holders(level string, e format.Epoch, match func(h *Holding) bool) []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []int
	for i := range k.list {
		h := &k.list[i]
		if h.Level == level && h.Epoch == e && match(h) && !slices.Contains(out, h.From) {
			out = append(out, h.From)
		}
	}
	return out
}

// Epochs lists the epochs of which anything lies at a level, some more than once.
func (k *Known) Epochs(level string) (out []format.Epoch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.list {
		if k.list[i].Level == level {
			out = append(out, k.list[i].Epoch)
		}
	}
	return out
}

// HasShard says whether a rank's shard lies there.
func (h *Holding) HasShard(rank int) bool { return slices.Contains(h.Shards, rank) }
