package coordinated

import (
	"context"
	"crypto/rand"
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
var shareWait = 30 * time.Second

// NotSharedError says that some nodes do not see what another node writes to the
// global directory. Epochs there would be in pieces that no later start could find
// together.
type NotSharedError struct {
	Dir   string
	Wrote string   // node of rank 0
	Nodes []string // that do not see it
}

// Error names the directory, and the nodes that do not see it.
func (e *NotSharedError) Error() string {
	return fmt.Sprintf("the global directory %s is not shared: node(s) %s do not see what node %s writes there; "+
		"name a directory of a file system that all nodes mount, or set none and use local with partner or parity",
		e.Dir, names(e.Nodes), e.Wrote)
}

// checkShared makes sure that every node sees the same global directory: rank 0 writes
// a file of a random name, and one rank of each other node looks for it. Collective.
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
		return fmt.Errorf("coordinated: check the global directory: %w", err)
	}
	// The name is that of a file in the making: a later start clears it away.
	file := filepath.Join(c.opt.Global, "holdfast.shared.r000000."+hex.EncodeToString(nonce)+".tmp")
	if me == 0 {
		err = touchFile(c.opt.files, file)
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
		if rerr := c.opt.files.Remove(file); rerr != nil {
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
	return &NotSharedError{Dir: c.opt.Global, Wrote: c.topo.Nodes[0], Nodes: all}
}

// sees looks for a file until it is there.
func (c *Checkpointer) sees(ctx context.Context, file string) bool {
	ctx, cancel := context.WithTimeout(ctx, shareWait)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		// A listing makes a network file system look again.
		if _, err := c.opt.files.Stat(file); err == nil {
			return true
		}
		_, _ = c.opt.files.ReadDir(filepath.Dir(file)) // only for its effect
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
