package coordinated

import (
	"crypto/sha256"
	"fmt"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// dirMark is how long the mark of a directory is.
const dirMark = 16

// findWriters finds which rank writes the manifests of each rank's directory of a level, by level and rank: the first
// of those ranks of a node that have the same directory. A manifest describes all ranks, so who writes none need not
// hear of all. Collective.
func (c *Checkpointer) findWriters(priv connect.Ranks) (map[string][]int, error) {
	var own []string
	var mine []byte
	for _, level := range c.levels.use { // the same on all ranks
		if !storage.TraitsOf(level).Shared {
			own = append(own, level)
			mine = append(mine, markOf(vfs.Identity(c.opt.files, c.levels.dirs[level]))...)
		}
	}
	if len(own) == 0 {
		return nil, nil
	}
	all := make([]byte, len(mine)*priv.Size())
	if err := priv.Allgather(all, mine); err != nil {
		return nil, fmt.Errorf("coordinated: find the ranks that share directories: %w", err)
	}
	out := map[string][]int{}
	for i, level := range own {
		marks := make([][dirMark]byte, priv.Size())
		for r := range marks {
			copy(marks[r][:], all[r*len(mine)+i*dirMark:])
		}
		out[level] = firstOfEach(c.topo.Nodes, marks)
	}
	return out, nil
}

// markOf is short for an identity; that of none is zero.
func markOf(identity string) []byte {
	if identity == "" {
		return make([]byte, dirMark)
	}
	sum := sha256.Sum256([]byte(identity))
	return sum[:dirMark]
}

// firstOfEach is by rank the first rank on the same node with the same mark; a rank whose mark is zero is alone.
func firstOfEach(nodes []string, marks [][dirMark]byte) []int {
	type place struct {
		node string
		mark [dirMark]byte
	}
	first, out := map[place]int{}, make([]int, len(marks))
	for r := range marks {
		p := place{nodes[r], marks[r]}
		f, known := first[p]
		if !known || p.mark == [dirMark]byte{} {
			f = r
		}
		if !known {
			first[p] = f
		}
		out[r] = f
	}
	return out
}
