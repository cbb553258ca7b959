package coordinated

import (
	"fmt"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// placement is what the ranks' nodes make of the levels that were asked for.
type placement struct {
	open []storage.LevelConfig // all whose directories may hold an epoch to restore
	use  []string              // those that new epochs go to, nearest first
	say  string                // what is not as it was asked for; empty: nothing
	why  error
}

// placeLevels finds the levels that the nodes of the ranks can carry. Parity
// wants as many nodes as a group has members and about as many ranks on each;
// copies take any placement on two nodes or more, so they stand in for parity. A
// level that cannot be had is left out of new epochs, and still read: an
// earlier start may have had it. Ranks find the same levels to use.
func placeLevels(levels []storage.LevelConfig, nodes []string, files vfs.FS) placement {
	if files == nil {
		files = vfs.OS{}
	}
	var p placement
	for _, l := range levels {
		p.open = append(p.open, l)
		err := l.Fits(nodes)
		if err == nil {
			p.use = append(p.use, l.Name)
		}
		if l.Name == storage.LevelParity {
			copies := copiesInstead(l, nodes)
			_, found := files.Stat(copies.Dir)
			stands := err != nil && copies.Copies > 0
			if stands || found == nil {
				p.open = append(p.open, copies)
			}
			if stands {
				p.use = append(p.use, copies.Name)
				p.say = fmt.Sprintf("parity cannot be had where the ranks are, %d copies on other nodes (partner) "+
					"stand in for it", copies.Copies)
				p.why = err
				continue
			}
		}
		if err != nil {
			p.say = "no epoch will be at " + l.Name + ", so the local ones do not survive the loss of a node"
			p.why = err
		}
	}
	return p
}

// copiesInstead is the level partner that survives as many nodes as the parity
// would, or as many as there are; Copies is 0 on a single node.
func copiesInstead(parity storage.LevelConfig, nodes []string) storage.LevelConfig {
	seen := map[string]bool{}
	for _, n := range nodes {
		seen[n] = true
	}
	return storage.LevelConfig{Name: storage.LevelPartner, Create: true, Keep: parity.Keep,
		Dir: filepath.Join(filepath.Dir(parity.Dir), storage.LevelPartner), Copies: min(parity.Parity, len(seen)-1)}
}
