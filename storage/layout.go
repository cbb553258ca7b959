package storage

import (
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Layout is what one rank's shard has of global arrays. A program hands it to Put as the section LayoutSection,
// encoded; the manifests of the epoch repeat it.
//
//	Quiet   bool // no message waits in the rank's mailbox, and no receive of it is pending
//	PerRank bool // the shard has other state, too, which makes sense for a rank of this number only
//	Arrays  []layout.Local
//
//	func Encode() ([]byte, error)
type Layout = format.Layout

// LayoutSection is the name of the section of a shard that has its Layout.
const LayoutSection = format.LayoutSection

// DecodeLayout reads what Layout.Encode made for a rank.
func DecodeLayout(rank int, b []byte) (*Layout, error) { return format.DecodeLayout("layout", rank, b) }

// CheckLayouts says why the layouts of all ranks, in their order, do not fit together: Commit would return the error.
func CheckLayouts(all []*Layout) error {
	m := format.Manifest{Size: len(all)}
	for r, l := range all {
		m.Shards = append(m.Shards, ShardInfo{Rank: r, Layout: l})
	}
	return m.Check()
}

// HoleError says that no rank owns the elements of a box. Commit returns it, and commits nothing.
//
//	Array string
//	Box   layout.Region
//	Near  []int // ranks that own elements beside the box, at most two
type HoleError = layout.HoleError

// OverlapError says that two ranks own the elements of a box, or one rank owns them twice. Commit returns it, and
// commits nothing.
//
//	Array string
//	Box   layout.Region
//	Ranks [2]int
type OverlapError = layout.OverlapError

// DuplicateError says that two ranks have an item with the same key. Commit returns it, and commits nothing.
//
//	Array string
//	Key   string // as people write it
//	Ranks [2]int
type DuplicateError = layout.DuplicateError

// DiffersError says that two ranks describe an array in different ways, or have different bytes of one that is
// replicated. Commit returns it, and commits nothing.
//
//	Array      string
//	What       string // "type", "dimensions", ...
//	Ranks      [2]int
//	Have, Want string // of the second rank, of the first
type DiffersError = layout.DiffersError

// ShapeError says that what a rank declares cannot be. Commit returns it, and commits nothing.
//
//	Array string
//	Rank  int // -1: not known
//	Why   string
type ShapeError = layout.ShapeError
