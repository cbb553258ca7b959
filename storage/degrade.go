package storage

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// errOtherLevel marks a directory that another level of the job uses.
var errOtherLevel = errors.New("it is the directory of another level")

// Out says which levels this rank cannot write to, and why, with Options.Degrade.
// What lies in them is read as far as it can be.
func (s *Store) Out() map[string]error {
	out := map[string]error{}
	for _, l := range s.levels {
		if l.out != nil {
			out[l.name] = l.out
		}
	}
	return out
}

// Use tells the store which levels the ranks agreed to write to; the others are read
// as far as they can be. It is called once, after Open, with at least one.
func (s *Store) Use(levels []string) {
	for _, l := range s.levels {
		if l.out == nil && !slices.Contains(levels, l.name) {
			l.out = errNotUsed
		}
	}
}

var errNotUsed = errors.New("other ranks cannot write to this level")

// Misplaced says that the error looks like a mistake in the settings and not like a
// fault of the file system: there is no such directory, or no right to use it.
func Misplaced(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR)
}

// degradable says that the job can do without the directory. One that is another
// job's, in use, or not to be trusted is refused all the same.
func degradable(err error) bool {
	var dir *DirError
	return errors.As(err, &dir) && !errors.Is(err, errOtherLevel) && !errors.Is(err, vfs.ErrUnsafe)
}

// setOut goes on with a level that cannot be written to because of why. What lies
// there may be another job's, or another run of this job may be using it.
func (s *Store) setOut(ctx context.Context, l *level, why error) error {
	l.out = why
	have, err := l.readMarker()
	if err != nil {
		return nil // nothing to be had from it, then
	}
	if err := l.fits(have, s.markerOf(l.name)); err != nil {
		return err
	}
	if s.opt.Run == "" {
		return nil
	}
	return l.unused(ctx, s.opt.Run, s.opt.beat)
}

// unused makes sure, without writing, that no other run uses the directory.
func (d *levelDir) unused(ctx context.Context, run string, beat time.Duration) error {
	var seen []byte
	start := time.Now()
	changed := start
	for {
		have, raw, err := d.readLock()
		if err != nil || have != nil && (have.Run == run || ended(&have.Owner)) {
			return nil // no lock, ours, or one that tells nothing any more
		}
		now := time.Now()
		if string(raw) != string(seen) {
			seen, changed = raw, now
		}
		switch {
		case now.Sub(changed) >= staleBeats*beat:
			return nil
		case changed.Sub(start) >= refuseBeats*beat && have != nil:
			return &BusyError{Level: d.name, Dir: d.path, Node: have.Owner.Node, PID: have.Owner.PID}
		}
		if err := sleep.For(ctx, beat/4); err != nil {
			return err
		}
	}
}

// working lists the levels that this rank can write to.
func (s *Store) working() (list []*level) {
	for _, l := range s.levels {
		if l.out == nil {
			list = append(list, l)
		}
	}
	return list
}
