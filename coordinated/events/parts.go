package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// keepRuns is how many runs a directory remembers.
const keepRuns = 100

func runDir(dir string, run int) string { return filepath.Join(dir, fmt.Sprintf("run-%06d", run)) }

func partName(rank, part int) string { return fmt.Sprintf("rank-%06d.%d.jsonl", rank, part) }

var (
	runForm  = regexp.MustCompile(`^run-(\d{6,9})$`)
	partForm = regexp.MustCompile(`^rank-(\d{6,8})\.(\d{1,6})\.jsonl$`)
)

// Runs lists the runs that a directory has logs of, ascending; none when there
// is no directory.
func Runs(ctx context.Context, dir string) ([]int, error) {
	list, err := vfs.OrOS(vfs.From(ctx)).ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("event log: %w", err)
	}
	var runs []int
	for _, e := range list {
		if m := runForm.FindStringSubmatch(e.Name); m != nil && e.Dir {
			n, _ := strconv.Atoi(m[1]) // digits by the pattern
			runs = append(runs, n)
		}
	}
	slices.Sort(runs)
	return runs, nil
}

// Prune removes this rank's logs of runs long past, and their directories with
// the last of them.
func Prune(ctx context.Context, dir string, run, rank int) error {
	fsys := vfs.OrOS(vfs.From(ctx))
	runs, err := Runs(ctx, dir)
	if err != nil {
		return err
	}
	for _, old := range runs {
		if old > run-keepRuns {
			break
		}
		d := runDir(dir, old)
		list, err := fsys.ReadDir(d)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("event log: %w", err)
		}
		for _, f := range list {
			if r, _, ok := parsePart(f.Name); ok && r == rank {
				if err := fsys.Remove(filepath.Join(d, f.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("event log: %w", err)
				}
			}
		}
		_ = fsys.Remove(d) // not empty while other ranks have logs there
	}
	return nil
}

func parsePart(name string) (rank, part int, ok bool) {
	m := partForm.FindStringSubmatch(name)
	if m == nil {
		return 0, 0, false
	}
	rank, _ = strconv.Atoi(m[1]) // digits by the pattern
	part, _ = strconv.Atoi(m[2])
	return rank, part, true
}

// openPart starts the next file, with a header, and forgets the one before the
// last.
func (l *Log) openPart() error {
	dir := runDir(l.opt.Dir, l.opt.Header.Run)
	if l.file != nil {
		if err := l.file.Close(); err != nil {
			return fmt.Errorf("event log: %w", err)
		}
		l.file = nil
		l.part++
		if old := l.part - 2; old >= 0 {
			if err := l.opt.fs.Remove(filepath.Join(dir, partName(l.opt.Rank, old))); err != nil &&
				!errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("event log: %w", err)
			}
		}
	}
	f, err := l.opt.fs.Create(filepath.Join(dir, partName(l.opt.Rank, l.part)), false)
	if err != nil {
		return fmt.Errorf("event log: %w", err)
	}
	l.file, l.at, l.alive, l.dirty = f, 0, false, 0
	h := l.opt.Header
	h.Part = l.part
	now := time.Now()
	first := Event{Name: Open, Wall: now.UnixNano(), Mono: int64(now.Sub(l.opt.Begun)), Rank: l.opt.Rank,
		Begin: l.part == 0, Header: &h}
	if l.part == 0 {
		first.Wall, first.Mono = l.opt.Begun.UnixNano(), 0
	}
	b, err := first.line()
	if err == nil {
		err = l.append(b)
	}
	if err != nil { // without its first line it is no log: begin tries again
		err = errors.Join(err, l.file.Close(), l.opt.fs.Remove(filepath.Join(dir, partName(l.opt.Rank, l.part))))
		l.file = nil
	}
	return err
}

// write appends events and returns how many of them are in the file. A sign of
// life right behind another takes its place.
func (l *Log) write(batch []Event) (written int, err error) {
	var lines bytes.Buffer
	flush := func(upTo int) error {
		err := l.append(lines.Bytes())
		if err == nil {
			written = upTo
		}
		lines.Reset()
		return err
	}
	for i := range batch {
		e := &batch[i]
		b, err := e.line()
		if err != nil {
			return written, err
		}
		if e.Name == Alive {
			if err := flush(i); err != nil {
				return written, err
			}
			if err := l.writeAlive(b); err != nil {
				return written, err
			}
			l.alive = e.Lost == 0 // what it says of missing lines must stay
			written = i + 1
			continue
		}
		lines.Write(b)
		if l.at+int64(lines.Len()) > l.opt.MaxBytes/2 {
			if err := flush(i + 1); err != nil {
				return written, err
			}
			if err := l.openPart(); err != nil {
				return written, err
			}
		}
	}
	return written, flush(len(batch))
}

// append writes whole lines. When it fails the file may have any part of them
// behind at; the next lines overwrite it, and fill the rest of it.
func (l *Log) append(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	end := l.at + int64(len(b))
	if _, err := l.file.WriteAt(b, l.at); err != nil {
		l.dirty = max(l.dirty, end)
		return fmt.Errorf("event log: %w", err)
	}
	if l.dirty > end {
		fill, err := l.filler(int(l.dirty - end))
		if err == nil {
			_, err = l.file.WriteAt(fill, end)
		}
		if err != nil {
			l.dirty = max(l.dirty, end+int64(len(fill)))
			return fmt.Errorf("event log: %w", err)
		}
		end += int64(len(fill))
	}
	l.at, l.dirty = end, 0
	l.alive = false
	return nil
}

// filler is lines of at least n bytes together that readers pass over.
func (l *Log) filler(n int) ([]byte, error) {
	e := Event{Name: "fill", Rank: l.opt.Rank}
	line, err := e.line()
	if err != nil {
		return nil, err
	}
	const most = maxLine / 2
	var out []byte
	for len(out) < n {
		pad := min(max(n-len(out)-len(line), 0), most)
		out = append(out, line[:len(line)-1]...)
		out = append(append(out, bytes.Repeat([]byte(" "), pad)...), '\n')
	}
	return out, nil
}

// aliveWidth is the length of a sign of life, so that one can replace another.
const aliveWidth = 160

func (l *Log) writeAlive(b []byte) error {
	if pad := aliveWidth - len(b); pad > 0 {
		b = append(append(b[:len(b)-1], bytes.Repeat([]byte(" "), pad)...), '\n')
	}
	if l.alive && l.width == int64(len(b)) {
		l.at -= l.width
		l.dirty = max(l.dirty, l.at+l.width)
	}
	l.alive = false
	if err := l.append(b); err != nil {
		return err
	}
	l.alive, l.width = true, int64(len(b))
	return nil
}
