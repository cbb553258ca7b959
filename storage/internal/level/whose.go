package level

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Whose says which run a place belongs to.
type Whose struct {
	Run        format.Identity // zero: nothing is there, or an older release has written it
	New        bool            // there is a place without anything
	Holds      bool            // an epoch of that run is or was committed there
	Restorable bool            // one is committed there, perhaps under a name of its own
	Newest     format.Epoch    // of those without a name
}

// NamePrefix begins the names of the directories, below a level's, with the checkpoints that a program takes under
// names of its own.
const NamePrefix = "name."

// RunText names a run for people, by the time of its first start and the first digits of its ID.
func RunText(i format.Identity) string {
	if i.IsZero() {
		return "a run of an older release of Holdfast"
	}
	return "the run that began " + time.Unix(0, i.Began).Format(time.DateTime) + " (" + i.Short() + ")"
}

// WhoseIs looks which run a place belongs to: by its job marker, or else by its newest manifest. l must not know whose
// it is, so that it reads all manifests. A place that cannot be looked at says nothing: opening it says why.
func WhoseIs(l Level) Whose {
	epochs, err := l.Epochs()
	if err != nil {
		return Whose{}
	}
	marker, merr := l.ReadMarker()
	w := Whose{New: errors.Is(merr, fs.ErrNotExist)}
	if merr == nil {
		w.Run = marker.Run
	}
	known := merr == nil
	for _, e := range epochs { // newest first
		m, err := l.ReadManifest(e)
		if err != nil {
			continue
		}
		if w.New = false; !known {
			w.Run, known = m.Run, true
		}
		if w.Run.Owns(m.Run) {
			w.Holds, w.Restorable, w.Newest = true, true, e
			break
		}
	}
	if b, err := l.ReadBegun(); err == nil && b.Epoch > 0 {
		if w.New = false; !known {
			w.Run = b.Run
		}
		w.Holds = w.Holds || w.Run.Owns(b.Run)
	}
	if !w.Restorable && holdsNamed(l, w.Run) {
		w.Holds, w.Restorable = true, true
	}
	return w
}

// holdsNamed reports whether a run has checkpoints with names below a directory.
func holdsNamed(l Level, run format.Identity) bool {
	d, ok := l.(*Dir)
	if !ok {
		return false
	}
	list, err := d.fs.ReadDir(d.path)
	if err != nil {
		return false
	}
	for _, entry := range list {
		if entry.Dir && strings.HasPrefix(entry.Name, NamePrefix) {
			below := WhoseIs(newDir(d.fs, place{path: filepath.Join(d.path, entry.Name), name: d.name}))
			if below.Restorable && run.Owns(below.Run) {
				return true
			}
		}
	}
	return false
}
