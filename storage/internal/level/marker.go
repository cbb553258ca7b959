package level

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Claim makes the place this job's, or refuses it. Ranks race to be the
// first: the marker gets its name whole, so the losers read the
// winner's and compare.
func Claim(l Level, want format.Marker) error {
	have, err := ReadMarker(l)
	if errors.Is(err, fs.ErrNotExist) {
		if err = l.first(format.MarkerName, want.Encode()); err == nil {
			have, err = ReadMarker(l)
		}
	}
	if errors.Is(err, format.ErrCorrupt) && allOf(l, want) {
		have, err = &want, l.replace(format.MarkerName, want.Encode(), true)
	}
	if err != nil {
		return l.Unusable(err)
	}
	if err := Fits(l, have, want); err != nil {
		return err
	}
	// The winner may not have synced the name yet when we saw it.
	return unusableIf(l, l.syncNotes())
}

// RewriteMarker gives the marker another number of ranks: the job continues with it.
func RewriteMarker(l Level, want format.Marker) error {
	return unusableIf(l, l.replace(format.MarkerName, want.Encode(), true))
}

// ClaimRun gives a place, which is locked, to a run, unless it has it already. Before that, take returns an error if
// the run may not have it, and removes records that say nothing about this run.
func ClaimRun(l Level, run format.Identity, take func() error) error {
	if run.IsZero() {
		return nil
	}
	have, err := ReadMarker(l)
	if err != nil {
		return l.Unusable(err)
	}
	if have.Run == run {
		return nil
	}
	if err := take(); err != nil {
		return err
	}
	have.Run = run
	return RewriteMarker(l, *have)
}

// allOf reports whether the epochs in a place whose marker is damaged are all of the job and level, and there is one.
func allOf(l Epochs, want format.Marker) bool {
	epochs, err := l.Epochs()
	found := false
	for _, e := range epochs {
		m, merr := l.ReadManifest(e)
		switch {
		case Absent(merr):
		case merr != nil || m.Job != want.Job || m.Size != want.Size || m.Level != want.Level:
			return false
		default:
			found = true
		}
	}
	return err == nil && found
}

// Fits reports whether the place is that of the job and level, by its marker.
func Fits(l Epochs, have *format.Marker, want format.Marker) error {
	switch {
	case have.Job != want.Job:
		return &JobError{Level: l.Name(), Dir: l.Path(), Have: have.Job, Want: want.Job}
	case have.Size != want.Size:
		return &SizeError{Level: l.Name(), Dir: l.Path(), Have: have.Size, Want: want.Size}
	case have.Level != want.Level:
		return &DirError{Level: l.Name(), Dir: l.Path(), Err: fmt.Errorf("%w, %s", ErrOtherLevel, have.Level),
			Remedy: "give each level its own directory"}
	}
	return nil
}

// RestoreMarker puts the job marker back into a directory that came back empty.
func (d *Dir) RestoreMarker(want format.Marker) error {
	_, err := d.fs.Stat(filepath.Join(d.path, format.MarkerName))
	if errors.Is(err, fs.ErrNotExist) {
		return Claim(d, want)
	}
	return err
}

// ReadMarker reads whose checkpoints the place holds.
func ReadMarker(l Level) (*format.Marker, error) {
	return readNote(l, format.MarkerName, format.DecodeMarker)
}

// Owner is the run that a place belongs to.
type Owner struct {
	Run        format.Identity // zero: nothing is there, or an older release has written it
	New        bool            // there is a place without anything
	HasEpochs  bool            // an epoch of that run is or was committed there
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

// OwnerOf finds the run that a place belongs to: by its job marker, or else by its newest manifest. l must not know its
// run, so that it reads all manifests. A place that cannot be looked at has none: opening it reports the error.
func OwnerOf(l Level) Owner {
	epochs, err := l.Epochs()
	if err != nil {
		return Owner{}
	}
	marker, merr := ReadMarker(l)
	w := Owner{New: errors.Is(merr, fs.ErrNotExist)}
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
			w.HasEpochs, w.Restorable, w.Newest = true, true, e
			break
		}
	}
	if b, err := ReadHistory(l); err == nil && b.Epoch > 0 {
		if w.New = false; !known {
			w.Run = b.Run
		}
		w.HasEpochs = w.HasEpochs || w.Run.Owns(b.Run)
	}
	if !w.Restorable && hasNamed(l, w.Run) {
		w.HasEpochs, w.Restorable = true, true
	}
	return w
}

// hasNamed reports whether a run has checkpoints with names below a directory.
func hasNamed(l Level, run format.Identity) bool {
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
			below := OwnerOf(newDir(d.fs, place{path: filepath.Join(d.path, entry.Name), name: d.name}))
			if below.Restorable && run.Owns(below.Run) {
				return true
			}
		}
	}
	return false
}
