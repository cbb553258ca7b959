package storage

import (
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
