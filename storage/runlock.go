package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// lockBeat is how often a lock is rewritten. An owner that misses staleBeats
// of them in a row is dead; one that is seen alive for refuseBeats is not about
// to end either.
const (
	lockBeat    = time.Second
	staleBeats  = 3
	refuseBeats = 6
)

// BusyError reports a level's directory that another run of the job uses now:
// the two would overwrite each other's epochs.
type BusyError struct {
	Level, Dir string
	Node       string // where the other run's owner of the directory is
	PID        int
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("level %s directory %s is in use by another run of this job: process %d on node %s; "+
		"end that run first, or use another directory", e.Level, e.Dir, e.PID, e.Node)
}

func (d *levelDir) lockPath() string { return join(d.path, format.LockName) }

// readLock returns nil without an error for a lock that is just being
// rewritten, or damaged: who watches it sees whether it changes.
func (d *levelDir) readLock() (*format.Lock, []byte, error) {
	b, err := readFile(d.fs, d.lockPath(), 1<<16)
	if err != nil {
		return nil, nil, err
	}
	l, err := format.DecodeLock(d.lockPath(), b)
	if err != nil {
		return nil, b, nil
	}
	return l, b, nil
}

// hold makes sure that no other run uses the directory: it takes the lock, or
// finds it with a rank of the same run. owned says that beating is up to us. An
// owner that is dead is replaced: at once when it ran on this machine, after
// staleBeats otherwise.
func (d *levelDir) hold(ctx context.Context, want *format.Lock, beat time.Duration) (owned bool, err error) {
	var seen []byte
	start := time.Now()
	changed := start
	var rival time.Time // when another run was first seen to take the lock over; zero: none
	for {
		err := d.takeLock(want)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return false, d.unusable(err)
		}
		have, raw, err := d.readLock()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // it has just been given up
		case err != nil:
			return false, d.unusable(err)
		case have != nil && have.Run == want.Run:
			return false, nil
		}
		now := time.Now()
		if string(raw) != string(seen) {
			seen, changed, rival = raw, now, time.Time{}
		}
		switch {
		case have != nil && ended(&have.Owner), now.Sub(changed) >= staleBeats*beat:
			taken, err := d.takeOver(raw, want)
			switch {
			case err != nil:
				return false, d.unusable(err)
			case taken:
				return true, nil
			case rival.IsZero():
				rival = now
			case now.Sub(rival) >= staleBeats*beat: // it has died before it was done
				rival = time.Time{}
				if err := removeIfThere(d.fs, d.claimPath(raw)); err != nil {
					return false, d.unusable(err)
				}
			}
		case changed.Sub(start) >= refuseBeats*beat && have != nil:
			return false, &BusyError{Level: d.name, Dir: d.path, Node: have.Owner.Node, PID: have.Owner.PID}
		}
		if err := sleep.For(ctx, beat/4); err != nil {
			return false, err
		}
	}
}

// takeLock makes the lock if there is none. It is linked to its name whole, so
// of runs that race one wins.
func (d *levelDir) takeLock(want *format.Lock) error {
	if _, err := d.fs.Stat(d.lockPath()); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, when(err == nil, fs.ErrExist))
	}
	temp := join(d.path, tempName(format.LockName, d.owner))
	if err := writeFile(d.fs, temp, want.Encode()); err != nil {
		return err
	}
	err := d.fs.Link(temp, d.lockPath())
	if errors.Is(err, errors.ErrUnsupported) { // and so are two runs that start within a moment
		return d.fs.Rename(temp, d.lockPath())
	}
	if errors.Is(err, fs.ErrNotExist) { // who has the directory now cleared temp away
		return fs.ErrExist
	}
	return errors.Join(err, removeIfThere(d.fs, temp))
}

// claimPath is the file by which one of the runs that find a dead owner's lock gets
// the right to replace it: a name for just these bytes, which only one can link.
func (d *levelDir) claimPath(lock []byte) string {
	sum := sha256.Sum256(lock)
	return join(d.path, format.LockName+".claim."+hex.EncodeToString(sum[:6]))
}

// takeOver replaces the lock of a dead owner, in one step, if it still is what was
// seen and no other run is doing the same.
func (d *levelDir) takeOver(seen []byte, want *format.Lock) (taken bool, err error) {
	temp := join(d.path, tempName(format.LockName, d.owner))
	if err := writeFile(d.fs, temp, want.Encode()); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, removeIfThere(d.fs, temp)) }()
	claim := d.claimPath(seen)
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
	_, got, err := d.readLock()
	if err == nil && string(got) == string(seen) {
		err = d.fs.Rename(temp, d.lockPath())
		taken = err == nil
	}
	return taken, ignoreGone(err)
}

// beatOnce rewrites an own lock, or says that it is lost.
func (d *levelDir) beatOnce(l *format.Lock) error {
	have, _, err := d.readLock()
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
		return &BusyError{Level: d.name, Dir: d.path, Node: have.Owner.Node, PID: have.Owner.PID}
	}
	l.Beat++
	f, err := d.fs.Edit(d.lockPath(), false)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(l.Encode(), 0); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// giveUp removes an own lock.
func (d *levelDir) giveUp(l *format.Lock) error {
	have, _, err := d.readLock()
	if err != nil || have == nil || have.Run != l.Run || have.Owner != l.Owner {
		return ignoreGone(err)
	}
	return removeIfThere(d.fs, d.lockPath())
}

// pulse keeps the locks of a store alive.
type pulse struct {
	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex
	lost error // guarded by mu: a directory has gone to another run
}

// guard takes part in the lock of a level's directory.
func (s *Store) guard(ctx context.Context, l *level) error {
	if s.opt.Run == "" {
		return nil
	}
	want := &format.Lock{Run: s.opt.Run, Owner: thisProcess()}
	owned, err := l.hold(ctx, want, s.opt.beat)
	if err == nil && owned {
		l.lock = want
	}
	return err
}

// keepAlive starts beating for what this store owns.
func (s *Store) keepAlive() {
	s.pulse.stop = make(chan struct{})
	for _, l := range s.levels {
		if l.lock == nil {
			continue
		}
		s.pulse.done.Go(func() {
			tick := time.NewTicker(s.opt.beat)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					s.pulse.note(l.beatOnce(l.lock))
				case <-s.pulse.stop:
					return
				}
			}
		})
	}
}

// note remembers that a directory is lost. That it could not be written to will
// be noticed by others.
func (p *pulse) note(err error) {
	var busy *BusyError
	if !errors.As(err, &busy) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = err
}

func (p *pulse) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// letGo stops beating and gives the directories up.
func (s *Store) letGo() error {
	if s.pulse.stop == nil {
		return nil
	}
	close(s.pulse.stop)
	s.pulse.done.Wait()
	s.pulse.stop = nil
	return s.dropLocks()
}

func (s *Store) dropLocks() error {
	var err error
	for _, l := range s.levels {
		if l.lock != nil {
			err = errors.Join(err, l.giveUp(l.lock))
		}
	}
	return err
}
