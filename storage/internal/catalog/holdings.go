package catalog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Holding describes an epoch in one rank's directory of a level.
type Holding struct {
	From   int // rank
	Level  string
	Epoch  format.Epoch
	Id     [16]byte       // of the manifest; zero: there is none, so the files may be of an abandoned attempt
	Shards []int          // ranks whose shards lie there
	Rows   []format.RowID // parity rows that lie there
}

func holdingsFields(f format.Fields, list *[]Holding) {
	format.List(f, list, 34, func(h *Holding) {
		f.Str(&h.Level)
		f.Epoch(&h.Epoch)
		f.Sum(&h.Id)
		format.List(f, &h.Shards, 4, f.Int)
		format.List(f, &h.Rows, 8, func(r *format.RowID) {
			f.Int(&r.Rank)
			f.Int(&r.J)
		})
	})
}

func encodeHoldings(list []Holding) []byte {
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

// Known has the holdings that other ranks have reported.
type Known struct {
	mu   sync.Mutex
	list []Holding // guarded by mu
}

// Learn replaces the holdings of a rank.
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

// Holders lists the ranks whose holding of e at a level satisfies match.
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

// Epochs lists the epochs that have files at a level, some more than once.
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

// HasShard reports whether a rank's shard lies there.
func (h *Holding) HasShard(rank int) bool { return slices.Contains(h.Shards, rank) }

// Holdings describes this rank's directories, for Learn on the other ranks. Directories that all ranks see, of the
// level global, are left out.
func (c *Catalog) Holdings(ctx context.Context) ([]byte, error) {
	var list []Holding
	for _, l := range c.levels {
		if l.Traits().Shared {
			continue
		}
		epochs, err := l.Epochs()
		if err != nil && l.Unwritable == nil {
			return nil, err
		}
		for _, e := range epochs {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			size := c.Size
			if c.Elastic {
				size = math.MaxInt // shards of ranks that are no more
			}
			h, err := holdingOf(l, e, size)
			if level.OfOtherRun(err) {
				continue // Candidates reports it
			}
			if err != nil {
				c.Log.Warn("holdfast: epoch not offered to other ranks: it cannot be read", "epoch", e, "level",
					l.Name(), "err", err)
				continue
			}
			h.From = c.Rank
			list = append(list, h)
		}
	}
	return encodeHoldings(list), nil
}

// holdingOf describes an epoch's directory. A directory without a manifest counts, and so does one whose manifest is
// damaged: the manifest was written after all shards were durable, by one rank after the other, and another rank may
// have it.
func holdingOf(d level.Epochs, e format.Epoch, size int) (Holding, error) {
	h := Holding{Level: d.Name(), Epoch: e}
	m, err := d.ReadManifest(e)
	switch {
	case err == nil:
		h.Id = m.ID()
	case !level.Absent(err) && !errors.Is(err, format.ErrCorrupt):
		return Holding{}, err
	}
	files, err := d.Files(e)
	if err != nil {
		return Holding{}, err
	}
	for _, f := range files {
		rank, j, ok := format.ParseName(f.Name)
		switch {
		case !ok || rank >= size:
		case j >= 0:
			h.Rows = append(h.Rows, format.RowID{Rank: rank, J: j})
		default:
			h.Shards = append(h.Shards, rank)
		}
	}
	return h, nil
}
