package persist

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// noteName is the file of a Note.
const noteName = "holdfast.stayed"

// maxNote bounds the bytes that are read of it.
const maxNote = 1 << 20

// Note is a file in the global directory, or an object in the object store. It names a final epoch that is not there
// yet, and perhaps never will be: a run on other nodes cannot see that epoch, and warns of it. It is a hint: nothing is
// lost without it. A nil Note does nothing.
type Note struct {
	Dir   string
	Nodes []string // of the ranks
	Files vfs.OS
	Log   *slog.Logger

	epoch atomic.Uint64 // in the file; 0: there is none
}

// note is the file's contents.
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
		err = n.put(append(b, '\n'))
	}
	if err != nil {
		n.Log.Warn("holdfast: cannot record where the final epoch is; a run on other nodes will not know of it",
			"epoch", e, "error", err)
		return
	}
	n.epoch.Store(uint64(e))
}

// Warn warns that the final epoch of the previous run is newer than the epoch that this one goes on from; 0 is a first
// start.
func (n *Note) Warn(from storage.Epoch) {
	if n == nil {
		return
	}
	b, err := n.get()
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
	if err := n.remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.Log.Warn("holdfast: cannot remove the record of a final epoch", "error", err)
	}
}

// storeTime bounds a note's operations in an object store.
const storeTime = 20 * time.Second

// inStore finds the note in an object store; not ok if the level is a directory.
func (n *Note) inStore() (at storage.ObjectRecord, ctx context.Context, cancel context.CancelFunc, ok bool) {
	ctx, cancel = context.WithTimeout(context.Background(), storeTime)
	return storage.ObjectRecord{Dir: n.Dir, Name: noteName}, ctx, cancel, storage.IsObjectStore(n.Dir)
}

func (n *Note) put(b []byte) error {
	at, ctx, cancel, ok := n.inStore()
	defer cancel()
	if ok {
		return at.Write(ctx, b)
	}
	return vfs.WriteWhole(filepath.Join(n.Dir, noteName), b)
}

func (n *Note) get() ([]byte, error) {
	at, ctx, cancel, ok := n.inStore()
	defer cancel()
	if ok {
		return at.Read(ctx)
	}
	return n.Files.ReadFile(filepath.Join(n.Dir, noteName), maxNote)
}

func (n *Note) remove() error {
	at, ctx, cancel, ok := n.inStore()
	defer cancel()
	if ok {
		return at.Remove(ctx)
	}
	return os.Remove(filepath.Join(n.Dir, noteName))
}
