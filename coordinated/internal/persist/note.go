package persist

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/storage"
)

// noteName is the record of a Note.
const noteName = "holdfast.stayed"

// Note is a record at the level global. It names a final epoch that is not there
// yet, and perhaps never will be: a run on other nodes cannot see that epoch, and warns of it. It is a hint: nothing is
// lost without it. A nil Note does nothing.
type Note struct {
	Dir     string   // of the level
	Nodes   []string // of the ranks
	Foreign bool     // a record of another user counts
	Log     *slog.Logger

	epoch atomic.Uint64 // in the record; 0: there is none
}

// note is the record's contents.
type note struct {
	Epoch storage.Epoch `json:"epoch"`
	Nodes []string      `json:"nodes"` // whose local directories have it
}

func (n *Note) record() storage.Record {
	return storage.Record{Dir: n.Dir, Name: noteName, Foreign: n.Foreign}
}

// write notes that a final epoch has yet to come to global.
func (n *Note) write(e storage.Epoch) {
	if n == nil {
		return
	}
	b, err := json.Marshal(note{e, slices.Compact(slices.Sorted(slices.Values(n.Nodes)))})
	if err == nil {
		err = n.record().Write(context.Background(), append(b, '\n'))
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
	b, err := n.record().Read(context.Background())
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

// end removes the record when an epoch as new is at global.
func (n *Note) end(e storage.Epoch) {
	if n == nil || n.epoch.Load() == 0 || uint64(e) < n.epoch.Load() {
		return
	}
	n.epoch.Store(0)
	if err := n.record().Remove(context.Background()); err != nil {
		n.Log.Warn("holdfast: cannot remove the record of a final epoch", "error", err)
	}
}
