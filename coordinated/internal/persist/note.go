package persist

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// noteName is the file of a Note.
const noteName = "holdfast.stayed"

// maxNote bounds what is read of it.
const maxNote = 1 << 20

// Note is a file in the global directory. It tells of a final epoch that is not there yet,
// and perhaps will never be: a run on other nodes cannot see it, and is to say what it does
// without. It is a hint: nothing is lost without it. A nil Note does nothing.
type Note struct {
	Dir   string
	Nodes []string // of the ranks
	Files vfs.OS
	Log   *slog.Logger

	epoch atomic.Uint64 // that the file tells of; 0: there is none
}

// note is what the file says.
type note struct {
	Epoch storage.Epoch `json:"epoch"`
	Nodes []string      `json:"nodes"` // whose local directories have it
}

// write notes that a final epoch has yet to come to global.
func (n *Note) write(e storage.Epoch) {
	if n == nil {
		return
	}
	b, err := json.Marshal(note{e, slices.Compact(slices.Sorted(slices.Values(n.Nodes)))})
	if err == nil {
		err = vfs.WriteWhole(filepath.Join(n.Dir, noteName), append(b, '\n'))
	}
	if err != nil {
		n.Log.Warn("holdfast: cannot record where the final epoch is; a run on other nodes will not know of it",
			"epoch", e, "error", err)
		return
	}
	n.epoch.Store(uint64(e))
}

// Warn warns that the final epoch of the run before is newer than what this one goes on
// from; 0 is a first start.
func (n *Note) Warn(from storage.Epoch) {
	if n == nil {
		return
	}
	b, err := n.Files.ReadFile(filepath.Join(n.Dir, noteName), maxNote)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var s note
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		n.Log.Warn("holdfast: cannot tell whether the previous run has a newer final epoch on its nodes", "error", err)
		return
	}
	n.epoch.Store(uint64(s.Epoch))
	if s.Epoch > from {
		n.Log.Warn("holdfast: the final epoch of the previous run is not at global and was not restored; to "+
			"continue from it, end this run and start on the nodes that have it",
			"epoch", s.Epoch, "nodes", strings.Join(s.Nodes, ","), "restored", from)
	}
}

// end removes the file when an epoch as new is at global.
func (n *Note) end(e storage.Epoch) {
	if n == nil || n.epoch.Load() == 0 || uint64(e) < n.epoch.Load() {
		return
	}
	n.epoch.Store(0)
	if err := os.Remove(filepath.Join(n.Dir, noteName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.Log.Warn("holdfast: cannot remove the record of a final epoch", "error", err)
	}
}
