package level

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// ReadBegun reads whether the job has begun.
func (d *Dir) ReadBegun() (*format.Begun, error) {
	file := filepath.Join(d.Path, format.BegunName)
	b, err := ReadFile(d.FS, file, format.LedgerLimit)
	if err != nil {
		return nil, err
	}
	return format.DecodeBegun(file, b)
}

// WriteBegun notes, durably, whether the job has begun.
func (d *Dir) WriteBegun(b *format.Begun) error {
	temp := filepath.Join(d.Path, TempName(format.BegunName, d.Owner))
	if err := WriteFile(d.FS, temp, b.Encode()); err != nil {
		return err
	}
	if err := d.FS.Rename(temp, filepath.Join(d.Path, format.BegunName)); err != nil {
		return err
	}
	return d.FS.SyncDir(d.Path)
}

// NoteNoneBegun makes a directory without epochs say that there is none yet. Others may
// be doing so; one that has seen an epoch meanwhile is not overwritten.
func (d *Dir) NoteNoneBegun() error {
	if _, err := d.ReadBegun(); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if epochs, err := d.Epochs(); err != nil || len(epochs) > 0 {
		return d.unusableIf(err)
	}
	temp := filepath.Join(d.Path, TempName(format.BegunName, d.Owner))
	if err := WriteFile(d.FS, temp, (&format.Begun{}).Encode()); err != nil {
		return d.Unusable(err)
	}
	final := filepath.Join(d.Path, format.BegunName)
	err := d.FS.Link(temp, final)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return d.unusableIf(d.FS.Rename(temp, final))
	case errors.Is(err, fs.ErrExist):
		err = nil
	}
	return d.unusableIf(errors.Join(err, removeIfThere(d.FS, temp)))
}

// TryRecord reads a small file; one that has just gone is no problem.
func (d *Dir) TryRecord(name string, decode func(file string, b []byte) error) error {
	file := filepath.Join(d.Path, name)
	b, err := ReadFile(d.FS, file, format.LedgerLimit)
	if err == nil {
		err = decode(file, b)
	}
	return ignoreMissing(err)
}

// WriteLedger replaces a rank's ledger in one step.
func (d *Dir) WriteLedger(l *format.Ledger) error {
	final := filepath.Join(d.Path, format.LedgerName(l.Rank))
	b := l.Encode()
	if have, err := ReadFile(d.FS, final, format.LedgerLimit); err == nil && string(have) == string(b) {
		return nil
	}
	temp := filepath.Join(d.Path, TempName(format.LedgerName(l.Rank), d.Owner))
	if err := WriteFile(d.FS, temp, b); err != nil {
		return err
	}
	return d.FS.Rename(temp, final)
}

// ReadLedger reads a rank's ledger.
func (d *Dir) ReadLedger(rank int) (*format.Ledger, error) {
	return d.readLedger(filepath.Join(d.Path, format.LedgerName(rank)))
}

func (d *Dir) readLedger(file string) (*format.Ledger, error) {
	b, err := ReadFile(d.FS, file, format.LedgerLimit)
	if err != nil {
		return nil, err
	}
	return format.DecodeLedger(file, b)
}

// ReadLedgers reads all ledgers of a directory. What is wrong with one comes back
// beside the others.
func (d *Dir) ReadLedgers() (out []*format.Ledger, problems map[string]error, err error) {
	list, err := d.FS.ReadDir(d.Path)
	if err != nil {
		return nil, nil, d.Unusable(err)
	}
	problems = map[string]error{}
	for _, f := range list {
		if !format.IsLedger(f.Name) {
			continue
		}
		file := filepath.Join(d.Path, f.Name)
		l, err := d.readLedger(file)
		if err == nil && (format.LedgerName(l.Rank) != f.Name || !l.IsOf(d.Name)) {
			err = &format.CorruptError{File: file, Len: f.Size, Reason: "ledger of another rank or level"}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // replaced meanwhile
		case err != nil:
			problems[f.Name] = err
		default:
			out = append(out, l)
		}
	}
	return out, problems, nil
}

// Forget takes epochs that are removed on purpose out of the ledgers of a
// directory.
func (d *Dir) Forget(epochs []format.Epoch) error {
	books, _, err := d.ReadLedgers()
	if err != nil || len(epochs) == 0 {
		return err
	}
	for _, l := range books {
		v := l.At(d.Name)
		v.Epochs = slices.DeleteFunc(v.Epochs, func(p format.LedgerEpoch) bool {
			return slices.Contains(epochs, p.Epoch)
		})
		if err := d.WriteLedger(l); err != nil {
			return err
		}
	}
	return nil
}

// WriteTrials replaces a rank's trials, durably; none remove the file.
func (d *Dir) WriteTrials(t format.Trials, rank int) error {
	final := filepath.Join(d.Path, format.TrialsName(rank))
	if len(t) == 0 {
		if _, err := d.FS.Stat(final); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return removeIfThere(d.FS, final)
	}
	temp := filepath.Join(d.Path, TempName(format.TrialsName(rank), d.Owner))
	if err := WriteFile(d.FS, temp, t.Encode()); err != nil {
		return err
	}
	if err := d.FS.Rename(temp, final); err != nil {
		return err
	}
	return d.FS.SyncDir(d.Path)
}

// ReadTrials reads a rank's trials.
func (d *Dir) ReadTrials(rank int) (format.Trials, error) {
	file := filepath.Join(d.Path, format.TrialsName(rank))
	b, err := ReadFile(d.FS, file, 1<<20)
	if err != nil {
		return nil, err
	}
	return format.DecodeTrials(file, b)
}

// PlaceTrials gives the first trials their name. They are durable when the function returned has returned nil; it is
// to be called once.
func (d *Dir) PlaceTrials(t format.Trials, rank int) (durable func() error, err error) {
	temp := filepath.Join(d.Path, TempName(format.TrialsName(rank), d.Owner))
	f, err := d.FS.Create(temp, false)
	if err != nil {
		return nil, err
	}
	if _, err = f.WriteAt(t.Encode(), 0); err == nil {
		err = d.FS.Rename(temp, filepath.Join(d.Path, format.TrialsName(rank)))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), removeIfThere(d.FS, temp))
	}
	return func() error { return errors.Join(f.Sync(), f.Close(), d.FS.SyncDir(d.Path)) }, nil
}
