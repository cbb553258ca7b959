package level

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// LockBeat is the time between rewrites of a lock on a disk of this machine, LockBeatSlow on a file system that others
// see: there a write costs all of them, and may take seconds. An owner that misses StaleBeats beats in a row is dead;
// one that is seen alive for refuseBeats, or refuseLong, is not about to end either.
const (
	LockBeat     = time.Second
	LockBeatSlow = 10 * time.Second
	StaleBeats   = 3
	refuseBeats  = 6
	refuseLong   = 30 * time.Second
	firstPause   = 250 * time.Millisecond // between two looks; later ones are up to a quarter of a beat
)

// BeatOf returns how often the lock of a level is to be rewritten.
func BeatOf(l Level) time.Duration {
	if s, ok := l.(interface{ SlowLock() bool }); ok && s.SlowLock() {
		return LockBeatSlow
	}
	return LockBeat
}

// SlowLock reports whether other machines may see the directory, which makes the lock one that is
// rewritten seldom and taken over late.
func (d *Dir) SlowLock() bool { return d.remote() }

// lockWatch finds out whether the owner of a lock lives, by reading it.
type lockWatch struct {
	d     *Dir
	beat  time.Duration
	start time.Time
	pause sleep.Backoff

	seen  []byte
	same  int       // reads in a row that brought the same, each in time
	since time.Time // time of the first of these reads
	alive time.Time // when the lock last changed
	last  time.Time // when the newest read was complete
	rival time.Time // when another run was first seen to take over; zero: never
}

func (d *Dir) watchLock(beat time.Duration) *lockWatch {
	now := time.Now()
	return &lockWatch{d: d, beat: beat, start: now, since: now, alive: now, last: now,
		pause: sleep.Backoff{First: firstPause, Longest: beat / 4}}
}

// read reads the lock. A read that took longer than a beat, or came so late, says nothing about the owner: the cause, a
// file server that stood still or a stopped process, may have stopped the owner too.
func (w *lockWatch) read() (have *format.Lock, raw []byte, err error) {
	late := time.Since(w.last) > w.beat
	have, raw, err = w.d.ReadLock()
	now := time.Now()
	blocked := late || now.Sub(w.last) > w.beat+w.beat/4
	w.last = now
	switch {
	case err != nil:
	case string(raw) != string(w.seen):
		w.seen, w.same, w.since, w.alive, w.rival = raw, 1, now, now, time.Time{}
	case blocked:
		w.same, w.since = 1, now
	default:
		w.same++
	}
	return have, raw, err
}

// stale reports that the owner has missed its beats while the lock could be read all the time.
func (w *lockWatch) stale() bool {
	return w.same > 2*StaleBeats && w.last.Sub(w.since) >= StaleBeats*w.beat
}

// lives reports that the owner has been seen to beat for long enough to be refused for.
func (w *lockWatch) lives() bool {
	return w.alive.Sub(w.start) >= min(refuseBeats*w.beat, max(refuseLong, StaleBeats*w.beat))
}

func (w *lockWatch) wait(ctx context.Context) error { return sleep.For(ctx, w.pause.Next()) }

// Unused makes sure, without writing, that no other run uses the directory.
func (d *Dir) Unused(ctx context.Context, run string, beat time.Duration) error {
	for w := d.watchLock(beat); ; {
		have, _, err := w.read()
		switch {
		case err != nil || have != nil && (have.Run == run || ended(&have.Owner)):
			return nil // no lock, ours, or one that is void
		case w.stale():
			return nil
		case w.lives() && have != nil:
			return d.busy(have)
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
}

// ForRun makes a shared directory keep files of another run under the names that this one uses: a run that stood still
// until its lock was taken over wakes up in the middle of its work.
func ForRun(l Level, run string) {
	if d, ok := l.(*Dir); ok && d.Traits().Shared {
		d.run = run
	}
}

// stillOurs returns a *BusyError if another run has the directory. It is called before files of an uncommitted epoch
// are removed or replaced by name, which a normal epoch never needs.
func (d *Dir) stillOurs() error {
	if d.run == "" {
		return nil
	}
	have, _, err := d.ReadLock()
	if err != nil || have == nil || have.Run == d.run {
		return nil
	}
	return d.busy(have)
}

func (p *place) busy(have *format.Lock) error {
	return &BusyError{Level: p.name, Dir: p.path, Node: have.Owner.Node, PID: have.Owner.PID}
}

// LockPath returns the lock's file.
func (d *Dir) LockPath() string { return filepath.Join(d.path, format.LockName) }

// ReadLock returns nil without an error for a lock that is being rewritten, or damaged: its watcher sees whether it
// changes.
func (d *Dir) ReadLock() (*format.Lock, []byte, error) {
	f, err := d.fs.Open(d.LockPath())
	if err != nil {
		return nil, nil, err
	}
	l, b, err := d.decodeLock(f)
	return l, b, errors.Join(err, f.Close())
}

// maxLock bounds a lock, in bytes.
const maxLock = 1 << 16

func (d *Dir) decodeLock(f vfs.File) (*format.Lock, []byte, error) {
	b, err := readWhole(f, d.LockPath(), maxLock)
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

// Lock ensures that no other run uses the directory: it takes the lock, or finds it with a rank of the same run. owned
// reports that this process has to beat. A dead owner is replaced: at once if it ran on this machine, after StaleBeats
// otherwise.
//
// A network file system may have done an operation and report that it failed, because its first answer was lost: if the
// lock's file has our record to the last byte, it is ours. want.Beat makes these bytes differ from those of all other
// stores.
func (d *Dir) Lock(ctx context.Context, want *format.Lock, beat time.Duration) (owned bool, err error) {
	want.Beat = cmp.Or(want.Beat, rand.Uint64()>>1)
	for w := d.watchLock(beat); ; {
		err := d.takeLock(want)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return false, d.Unusable(err)
		}
		have, raw, err := w.read()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // it has just been given up
		case err != nil:
			return false, d.Unusable(err)
		case have != nil && have.Run == want.Run:
			return string(raw) == string(want.Encode()), nil
		}
		switch {
		case have != nil && ended(&have.Owner), w.stale():
			taken, err := d.takeOver(raw, want)
			switch {
			case err != nil:
				return false, d.Unusable(err)
			case taken:
				return true, nil
			case w.rival.IsZero():
				w.rival = time.Now()
			case time.Since(w.rival) >= StaleBeats*beat: // it has died before it was done
				w.rival = time.Time{}
				if err := removeIfThere(d.fs, d.ClaimPath(raw)); err != nil {
					return false, d.Unusable(err)
				}
			}
		case w.lives() && have != nil:
			return false, d.busy(have)
		}
		if err := w.wait(ctx); err != nil {
			return false, err
		}
	}
}

// takeLock makes the lock if there is none. It is linked to its name whole, so one of several racing runs wins.
func (d *Dir) takeLock(want *format.Lock) error {
	if _, err := d.fs.Stat(d.LockPath()); !errors.Is(err, fs.ErrNotExist) {
		return cmp.Or(err, fs.ErrExist)
	}
	temp := filepath.Join(d.path, TempName(format.LockName, d.owner))
	if err := WriteFile(d.fs, temp, want.Encode()); err != nil {
		return err
	}
	err := d.fs.Link(temp, d.LockPath())
	if errors.Is(err, errors.ErrUnsupported) { // and so are two runs that start at the same time
		return d.fs.Rename(temp, d.LockPath())
	}
	if errors.Is(err, fs.ErrNotExist) { // the run that has the directory now has cleared temp away
		return fs.ErrExist
	}
	return errors.Join(err, removeIfThere(d.fs, temp))
}

// ClaimPath returns the file by which one of the runs that find a dead owner's lock gets
// the right to replace it: a name for just these bytes, which only one can link.
func (d *Dir) ClaimPath(lock []byte) string {
	sum := sha256.Sum256(lock)
	return filepath.Join(d.path, format.LockName+".claim."+hex.EncodeToString(sum[:6]))
}

// takeOver replaces the lock of a dead owner in one step, if it is still the one that was seen and no other run does
// the same.
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
	case errors.Is(err, fs.ErrExist) && d.isLock(claim, want): // done, and its answer was lost
		defer func() { err = errors.Join(err, removeIfThere(d.fs, claim)) }()
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
	if errors.Is(err, fs.ErrNotExist) {
		return d.isLock(d.LockPath(), want), nil // renamed, and the answer was lost; or cleared away
	}
	return taken, err
}

// isLock reports whether a file is the lock that we want, to the last byte.
func (d *Dir) isLock(name string, want *format.Lock) bool {
	b, err := ReadFile(d.fs, name, maxLock)
	return err == nil && string(b) == string(want.Encode())
}

// Beat rewrites an own lock, or reports that it is lost. It looks at the file that it then writes to: one that has been
// replaced meanwhile has no reader. It syncs if other machines see the file. A lock that was removed is not made again
// (fs.ErrNotExist): all of the directory may be about to be removed.
func (d *Dir) Beat(l *format.Lock) (err error) {
	f, err := d.fs.Edit(d.LockPath(), false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	have, _, err := d.decodeLock(f)
	if err != nil {
		return err
	}
	if have != nil && (have.Run != l.Run || have.Owner != l.Owner) {
		return d.busy(have)
	}
	l.Beat++
	if _, err = f.WriteAt(l.Encode(), 0); err == nil && d.remote() {
		err = f.Sync()
	}
	return err
}

// Unlock removes an own lock.
func (d *Dir) Unlock(l *format.Lock) error {
	have, _, err := d.ReadLock()
	if err != nil || have == nil || have.Run != l.Run || have.Owner != l.Owner {
		return ignoreMissing(err)
	}
	return removeIfThere(d.fs, d.LockPath())
}

// ThisProcess names the calling process in locks, so that others can see whether it still runs.
var ThisProcess = sync.OnceValue(func() format.Process {
	p := format.Process{PID: os.Getpid()}
	p.Node, _ = os.Hostname()
	self, _ := child.Look(p.PID)
	if p.Started = self.Started; p.Started != 0 {
		p.Machine = child.Machine()
	}
	return p
})

// ended reports whether a process has ended for sure.
func ended(p *format.Process) bool { return child.HasEnded(p.Machine, p.PID, p.Started) }
