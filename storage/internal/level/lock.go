package level

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// lockWatch tells from what stands in a lock, again and again, whether its owner lives.
type lockWatch struct {
	beat                time.Duration
	start, now, changed time.Time
	seen                []byte
}

func watchLock(beat time.Duration) *lockWatch {
	now := time.Now()
	return &lockWatch{beat: beat, start: now, now: now, changed: now}
}

// look takes in what stands in the lock now, and says whether it has changed.
func (w *lockWatch) look(raw []byte) (changed bool) {
	w.now = time.Now()
	if changed = string(raw) != string(w.seen); changed {
		w.seen, w.changed = raw, w.now
	}
	return changed
}

// dead says that the owner has missed too many beats.
func (w *lockWatch) dead() bool { return w.now.Sub(w.changed) >= StaleBeats*w.beat }

// alive says that the owner has been seen to beat for so long that it will not end soon.
func (w *lockWatch) alive() bool { return w.changed.Sub(w.start) >= refuseBeats*w.beat }

// Unused makes sure, without writing, that no other run uses the directory.
func (d *Dir) Unused(ctx context.Context, run string, beat time.Duration) error {
	w := watchLock(beat)
	for {
		have, raw, err := d.ReadLock()
		if err != nil || have != nil && (have.Run == run || ended(&have.Owner)) {
			return nil // no lock, ours, or one that tells nothing any more
		}
		w.look(raw)
		switch {
		case w.dead():
			return nil
		case w.alive() && have != nil:
			return d.busy(have)
		}
		if err := sleep.For(ctx, beat/4); err != nil {
			return err
		}
	}
}

// LockBeat is how often a lock is rewritten. An owner that misses StaleBeats
// of them in a row is dead; one that is seen alive for refuseBeats is not about
// to end either.
const (
	LockBeat    = time.Second
	StaleBeats  = 3
	refuseBeats = 6
)

func (d *Dir) busy(have *format.Lock) error {
	return &BusyError{Level: d.name, Dir: d.path, Node: have.Owner.Node, PID: have.Owner.PID}
}

// LockPath is the lock's file.
func (d *Dir) LockPath() string { return filepath.Join(d.path, format.LockName) }

// ReadLock returns nil without an error for a lock that is just being
// rewritten, or damaged: who watches it sees whether it changes.
func (d *Dir) ReadLock() (*format.Lock, []byte, error) {
	b, err := ReadFile(d.fs, d.LockPath(), 1<<16)
	if errors.Is(err, format.ErrCorrupt) { // too long for a lock
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	l, err := format.DecodeLock(d.LockPath(), b)
	if err != nil {
		return nil, b, nil
	}
	return l, b, nil
}

// Lock makes sure that no other run uses the directory: it takes the lock, or
// finds it with a rank of the same run. owned says that beating is up to us. An
// owner that is dead is replaced: at once when it ran on this machine, after
// StaleBeats otherwise.
func (d *Dir) Lock(ctx context.Context, want *format.Lock, beat time.Duration) (owned bool, err error) {
	w := watchLock(beat)
	var rival time.Time // when another run was first seen to take the lock over; zero: none
	for {
		err := d.takeLock(want)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return false, d.Unusable(err)
		}
		have, raw, err := d.ReadLock()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // it has just been given up
		case err != nil:
			return false, d.Unusable(err)
		case have != nil && have.Run == want.Run:
			return false, nil
		}
		if w.look(raw) {
			rival = time.Time{}
		}
		switch {
		case have != nil && ended(&have.Owner), w.dead():
			taken, err := d.takeOver(raw, want)
			switch {
			case err != nil:
				return false, d.Unusable(err)
			case taken:
				return true, nil
			case rival.IsZero():
				rival = w.now
			case w.now.Sub(rival) >= StaleBeats*beat: // it has died before it was done
				rival = time.Time{}
				if err := removeIfThere(d.fs, d.ClaimPath(raw)); err != nil {
					return false, d.Unusable(err)
				}
			}
		case w.alive() && have != nil:
			return false, d.busy(have)
		}
		if err := sleep.For(ctx, beat/4); err != nil {
			return false, err
		}
	}
}

// takeLock makes the lock if there is none. It is linked to its name whole, so
// of runs that race one wins.
func (d *Dir) takeLock(want *format.Lock) error {
	if _, err := d.fs.Stat(d.LockPath()); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fs.ErrExist
		}
		return err
	}
	temp := filepath.Join(d.path, TempName(format.LockName, d.owner))
	if err := WriteFile(d.fs, temp, want.Encode()); err != nil {
		return err
	}
	err := d.fs.Link(temp, d.LockPath())
	if errors.Is(err, errors.ErrUnsupported) { // and so are two runs that start within a moment
		return d.fs.Rename(temp, d.LockPath())
	}
	if errors.Is(err, fs.ErrNotExist) { // who has the directory now cleared temp away
		return fs.ErrExist
	}
	return errors.Join(err, removeIfThere(d.fs, temp))
}

// ClaimPath is the file by which one of the runs that find a dead owner's lock gets
// the right to replace it: a name for just these bytes, which only one can link.
func (d *Dir) ClaimPath(lock []byte) string {
	sum := sha256.Sum256(lock)
	return filepath.Join(d.path, format.LockName+".claim."+hex.EncodeToString(sum[:6]))
}

// takeOver replaces the lock of a dead owner, in one step, if it still is what was
// seen and no other run is doing the same.
func (d *Dir) takeOver(seen []byte, want *format.Lock) (taken bool, err error) {
	temp := filepath.Join(d.path, TempName(format.LockName, d.owner))
	if err := WriteFile(d.fs, temp, want.Encode()); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, removeIfThere(d.fs, temp)) }()
	claim := d.ClaimPath(seen)
	err = d.fs.Link(temp, claim)
	switch {
	case errors.Is(err, errors.ErrUnsupported): // see takeLock
	case errors.Is(err, fs.ErrExist),
		errors.Is(err, fs.ErrNotExist): // a rival is at it, or is done and has cleared temp away
		return false, nil
	case err != nil:
		return false, err
	default:
		defer func() { err = errors.Join(err, removeIfThere(d.fs, claim)) }()
	}
	_, got, err := d.ReadLock()
	if err == nil && string(got) == string(seen) {
		err = d.fs.Rename(temp, d.LockPath())
		taken = err == nil
	}
	return taken, ignoreMissing(err)
}

// Beat rewrites an own lock, or says that it is lost.
func (d *Dir) Beat(l *format.Lock) error {
	have, _, err := d.ReadLock()
	if errors.Is(err, fs.ErrNotExist) {
		err = d.takeLock(l) // somebody tidied up
		if errors.Is(err, fs.ErrExist) {
			return nil // the next beat tells whose it is
		}
		return err
	}
	if err != nil {
		return err
	}
	if have != nil && (have.Run != l.Run || have.Owner != l.Owner) {
		return d.busy(have)
	}
	l.Beat++
	f, err := d.fs.Edit(d.LockPath(), false)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(l.Encode(), 0); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Unlock removes an own lock.
func (d *Dir) Unlock(l *format.Lock) error {
	have, _, err := d.ReadLock()
	if err != nil || have == nil || have.Run != l.Run || have.Owner != l.Owner {
		return ignoreMissing(err)
	}
	return removeIfThere(d.fs, d.LockPath())
}
