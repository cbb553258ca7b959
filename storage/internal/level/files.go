package level

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// ReadFile reads a whole small file of at most limit bytes.
func ReadFile(fsys vfs.FS, name string, limit int64) (b []byte, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return readWhole(f, name, limit)
}

// readWhole reads an open file of at most limit bytes.
func readWhole(f vfs.File, name string, limit int64) ([]byte, error) {
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, &format.CorruptError{File: name, Len: n, Reason: fmt.Sprintf("longer than %d bytes", limit)}
	}
	b := make([]byte, n)
	if m, err := f.ReadAt(b, 0); m < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// readRecord reads a file that is one record, at most as long as records may be.
func readRecord(fsys vfs.FS, name string) (b []byte, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n, err := f.Size()
	if err == nil && n > trusted {
		err = checkHead(f, name, n)
	}
	if err != nil {
		return nil, err
	}
	return readWhole(f, name, format.MaxRecordLen)
}

// trusted is the length up to which memory is taken for a file before anything in it was looked at: the manifest of
// half a million ranks is not read twice.
const trusted = 64 << 20

// checkHead compares the length and checksum of a large file with its record's head before it takes memory: a file with
// a hole takes no room on the disk.
func checkHead(f vfs.File, name string, n int64) error {
	b := make([]byte, format.RecordHead)
	if err := format.ReadFull(f, b, 0); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if want, ok := format.RecordLen(b); !ok || want != n {
		return &format.CorruptError{File: name, Len: n, Reason: "length is not that of its record"}
	}
	if n > format.MaxRecordLen {
		return nil // ReadFile reports it
	}
	sum, piece := uint32(0), make([]byte, 1<<20)
	for at := int64(0); at < n-4; at += int64(len(piece)) {
		piece = piece[:min(int64(len(piece)), n-4-at)]
		if err := format.ReadFull(f, piece, at); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		sum = format.UpdateCRC(sum, piece)
	}
	if err := format.ReadFull(f, b[:4], n-4); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if sum != binary.LittleEndian.Uint32(b) {
		return &format.CorruptError{File: name, Len: n, Reason: "checksum does not match"}
	}
	return nil
}

// WriteFile writes and syncs a new small file. Its name is not durable yet.
func WriteFile(fsys vfs.FS, name string, b []byte) error {
	f, err := fsys.Create(name, false)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		return errors.Join(err, removeIfThere(fsys, name))
	}
	return nil
}

// removeIfThere removes a file that may be gone.
func removeIfThere(fsys vfs.FS, name string) error {
	return ignoreMissing(fsys.Remove(name))
}

func (d *Dir) readSmall(name string) (b []byte, file string, err error) {
	file = filepath.Join(d.path, name)
	b, err = ReadFile(d.fs, file, format.LedgerLimit)
	return b, file, err
}

func (d *Dir) entries() ([]vfs.Entry, error) { return d.fs.ReadDir(d.path) }

func (d *Dir) syncNotes() error { return d.fs.SyncDir(d.path) }

// replace gives a small file of the directory new contents in one step; durable if they must survive the machine.
func (d *Dir) replace(name string, b []byte, durable bool) error {
	temp := filepath.Join(d.path, TempName(name, d.owner))
	err := WriteFile(d.fs, temp, b)
	if err == nil {
		err = d.fs.Rename(temp, filepath.Join(d.path, name))
	}
	if err == nil && durable {
		err = d.fs.SyncDir(d.path)
	}
	return err
}

func (d *Dir) removeSmall(name string, durable bool) error {
	err := removeIfThere(d.fs, filepath.Join(d.path, name))
	if durable {
		err = errors.Join(err, d.fs.SyncDir(d.path))
	}
	return err
}

// first makes a small file that others may be making too: it is linked to its name whole, and the first one wins.
func (d *Dir) first(name string, b []byte) error {
	temp, final := filepath.Join(d.path, TempName(name, d.owner)), filepath.Join(d.path, name)
	if err := WriteFile(d.fs, temp, b); err != nil {
		return err
	}
	err := d.fs.Link(temp, final)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return d.fs.Rename(temp, final)
	case errors.Is(err, fs.ErrExist):
		err = nil
	}
	return errors.Join(err, removeIfThere(d.fs, temp))
}

// TempName returns a name for a file in the making. It starts with the final name and names the rank that writes it, so
// that the rank's next start removes exactly the files that a crash left behind.
func TempName(final string, rank int) string {
	return fmt.Sprintf("%s.r%06d.%012x%s", final, rank, rand.Uint64()>>16, format.TempSuffix)
}
