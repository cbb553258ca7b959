package coordinated

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// unflushedName is a file in the global directory. It tells of a final epoch that is
// not there yet, and perhaps will never be: a run on other nodes cannot see it, and
// is to say what it does without.
const unflushedName = "holdfast.stayed"

// maxNote bounds what is read of small files in a directory of checkpoints.
const maxNote = 1 << 20

// unflushed is what it says. It is a hint: nothing is lost without it.
type unflushed struct {
	Epoch storage.Epoch `json:"epoch"`
	Nodes []string      `json:"nodes"` // whose local directories have it
}

// noteUnflushed notes that a final epoch has yet to come to global.
func (c *Checkpointer) noteUnflushed(e storage.Epoch) {
	if c.server == nil || c.opt.Global == "" {
		return
	}
	nodes := slices.Compact(slices.Sorted(slices.Values(c.topo.nodes)))
	b, err := json.Marshal(unflushed{e, nodes})
	if err == nil {
		err = writeWhole(filepath.Join(c.opt.Global, unflushedName), append(b, '\n'))
	}
	if err != nil {
		c.log.Warn("holdfast: a run on other nodes will not know of the final epoch", "epoch", e, "error", err)
		return
	}
	c.unflushed.Store(uint64(e))
}

// warnUnflushed warns that the final epoch of the run before is newer than what this
// one goes on from; 0 is a first start.
func (c *Checkpointer) warnUnflushed(from storage.Epoch) {
	if c.server == nil || c.opt.Global == "" || c.opt.Fresh || c.opt.Epoch != 0 {
		return
	}
	b, err := vfs.OS{AllowForeign: c.opt.AllowForeign}.ReadFile(filepath.Join(c.opt.Global, unflushedName), maxNote)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var s unflushed
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		c.log.Warn("holdfast: whether the final epoch of the run before is to be had is not known", "error", err)
		return
	}
	c.unflushed.Store(uint64(s.Epoch))
	if s.Epoch > from {
		c.log.Warn("holdfast: the final epoch of the run before is not at global and was not restored; to go on from "+
			"it, end this run and start on the nodes that have it",
			"epoch", s.Epoch, "nodes", strings.Join(s.Nodes, ","), "restored", from)
	}
}

// noteFlushed ends what the file tells when an epoch as new is at global.
func (c *Checkpointer) noteFlushed(e storage.Epoch) {
	if s := c.unflushed.Load(); s == 0 || uint64(e) < s {
		return
	}
	c.unflushed.Store(0)
	if err := os.Remove(filepath.Join(c.opt.Global, unflushedName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("holdfast: note of a final epoch", "error", err)
	}
}
