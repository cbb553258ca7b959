package level

import (
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/object"
)

// A user keeps epochs beside a job that holds the run lock, so what keeps one who prunes and one who keeps apart is
// this: both leave a note, and then look for the other's.
//
//  1. Who prunes announces which epochs will go, then reads which are to stay, and stops if one was added.
//  2. Who keeps writes that an epoch is to stay, then reads what is announced, and waits for the end of it.
//
// Whichever note is there first is seen by the other. An announcement has the name of a temporary file: that of a
// process which has died goes with the next start of the job, or with the next tool that has the lock.
const announcement = "prune"

// Announce says that epochs of a level that all ranks share are about to be removed. done takes that back.
func Announce(l Level, epochs []format.Epoch) (done func() error, err error) {
	if len(epochs) == 0 || !l.Traits().Shared {
		return func() error { return nil }, nil
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(epochs)))
	for _, e := range epochs {
		b = binary.LittleEndian.AppendUint64(b, uint64(e))
	}
	name := TempName(announcement, 0)
	if err := l.putAnnouncement(name, b); err != nil {
		return nil, err
	}
	return func() error { return l.dropAnnouncement(name) }, nil
}

// Announced says whether any of the epochs is about to be removed. One that cannot be read may be of any.
func Announced(l Level, epochs ...format.Epoch) (bool, error) {
	names, err := l.announcements()
	if err != nil {
		return false, err
	}
	for _, name := range names {
		b, _, err := l.readSmall(name)
		if err != nil {
			if ignoreMissing(err) == nil {
				continue
			}
			return false, err
		}
		if len(b) < 8 || uint64(len(b)) != 8+8*binary.LittleEndian.Uint64(b) { // it is being written
			return true, nil
		}
		for b = b[8:]; len(b) > 0; b = b[8:] {
			if slices.Contains(epochs, format.Epoch(binary.LittleEndian.Uint64(b))) {
				return true, nil
			}
		}
	}
	return false, nil
}

// DropAnnouncements removes those of dead processes. The caller has the run lock.
func DropAnnouncements(l Level) error {
	if !l.Traits().Shared {
		return nil
	}
	names, err := l.announcements()
	for _, name := range names {
		err = errors.Join(err, l.dropAnnouncement(name))
	}
	return err
}

// announcer is what a level needs for it.
type announcer interface {
	noteReader
	putAnnouncement(name string, b []byte) error
	dropAnnouncement(name string) error
	announcements() ([]string, error)
}

func isAnnouncement(name string) bool {
	_, temp := TempRank(name)
	return temp && strings.HasPrefix(name, announcement+".r")
}

// putAnnouncement need not make it durable: it concerns those who live.
func (d *Dir) putAnnouncement(name string, b []byte) error {
	f, err := d.fs.Create(filepath.Join(d.path, name), false)
	if err != nil {
		return d.Unusable(err)
	}
	_, err = f.WriteAt(b, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(d.Unusable(err), d.dropAnnouncement(name))
	}
	return nil
}

func (d *Dir) dropAnnouncement(name string) error {
	return removeIfThere(d.fs, filepath.Join(d.path, name))
}

func (d *Dir) announcements() (out []string, err error) {
	list, err := d.fs.ReadDir(d.path)
	if err != nil {
		return nil, d.Unusable(err)
	}
	for _, f := range list {
		if isAnnouncement(f.Name) {
			out = append(out, f.Name)
		}
	}
	return out, nil
}

func (l *Bucket) putAnnouncement(name string, b []byte) error {
	_, err := l.b.Put(context.Background(), name, b, "")
	return l.unusableIf(err)
}

func (l *Bucket) dropAnnouncement(name string) error {
	ctx := object.Tidying(context.Background())
	info, err := l.b.Head(ctx, name)
	if err == nil {
		err = l.b.Delete(ctx, info)
	}
	return l.unusableIf(ignoreMissing(err))
}

func (l *Bucket) announcements() (out []string, err error) {
	list, err := l.beside()
	for _, f := range entriesOf(list) {
		if isAnnouncement(f.Name) {
			out = append(out, f.Name)
		}
	}
	return out, err
}
