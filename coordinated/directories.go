package coordinated

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// shareWait is how long a node may take to see what another one has written: file
// systems keep what they know of a directory for a while. A variable for tests.
const shareWait = 30 * time.Second

// checkShared makes sure that every node sees the same global directory: rank 0 writes
// a file of a random name, and one rank of each other node looks for it. Epochs in directories of several nodes would
// be in pieces that no later start could find together. Collective.
func (c *Checkpointer) checkShared(ctx context.Context, priv connect.Ranks) error {
	shared := func(l string) bool { return storage.TraitsOf(l).Shared }
	if !slices.ContainsFunc(c.levels.use, shared) || storage.IsObjectStore(c.opt.Global) ||
		len(connect.Distinct(c.topo.Nodes)) == 1 {
		return nil
	}
	me := c.topo.Rank
	nonce := make([]byte, 6)
	var err error
	if me == 0 {
		_, err = rand.Read(nonce)
	}
	if err := connect.Agree(priv, "check the global directory", err); err != nil {
		return err
	}
	if err := connect.Broadcast(priv, nonce); err != nil {
		return fmt.Errorf("check the global directory: %w", err)
	}
	// The name is that of a file in the making: a later start clears it away.
	file := filepath.Join(c.opt.Global, "holdfast.shared.r000000."+hex.EncodeToString(nonce)+".tmp")
	if me == 0 {
		err = touchFile(c.files, file)
	}
	if err := connect.Agree(priv, "write to the global directory", err); err != nil {
		return err
	}
	blind := ""
	if c.topo.First() && !c.sees(ctx, file) {
		blind = c.topo.Nodes[me]
	}
	all, err := connect.Exchange(priv, blind)
	if me == 0 {
		if rerr := c.files.Remove(file); rerr != nil {
			c.log.Warn("holdfast: cannot remove the test file from the global directory", "error", rerr)
		}
	}
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(n string) bool { return n == "" })
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("the global directory %s is not shared: node(s) %s do not see what node %s writes there; name a "+
		"directory of a file system that all nodes mount, or set none and use local with partner or parity",
		c.opt.Global, names(all), c.topo.Nodes[0])
}

// sees looks for a file until it is there.
func (c *Checkpointer) sees(ctx context.Context, file string) bool {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.seam.ShareWait, shareWait))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		// A listing makes a network file system look again.
		if _, err := c.files.Stat(file); err == nil {
			return true
		}
		_, _ = c.files.ReadDir(filepath.Dir(file)) // only for its effect
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

func touchFile(fsys vfs.FS, name string) error {
	f, err := fsys.Create(name, false)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), fsys.SyncDir(filepath.Dir(name)))
}

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
			mine = append(mine, markOf(vfs.Identity(c.files, c.levels.dirs[level]))...)
		}
	}
	if len(own) == 0 {
		return nil, nil
	}
	all := make([]byte, len(mine)*priv.Size())
	if err := priv.Allgather(all, mine); err != nil {
		return nil, fmt.Errorf("find the ranks that share directories: %w", err)
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
