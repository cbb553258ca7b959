package events

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// file is the parts of a log, of one rank or of several: the last two are kept. It belongs to
// one goroutine.
type file struct {
	opt   Options
	name  func(rank, part int) string
	heads []Event // the first lines of the ranks, as they were logged; every part begins with them

	f     vfs.File // nil: no file is open
	part  int
	at    int64       // end of the written lines
	alive []aliveLine // behind at: signs of life, which the next ones take the place of
	dirty int64       // the file may have bytes up to here, behind at
}

type aliveLine struct {
	rank int
	line []byte
}

func newFile(opt Options, name func(rank, part int) string) *file {
	return &file{opt: opt, name: name, heads: []Event{head(opt)}}
}

func head(opt Options) Event {
	return Event{Name: Open, Wall: opt.Begun.UnixNano(), Rank: opt.Rank, Begin: true, Header: &opt.Header}
}

// open makes the directories and the first file.
func (l *file) open() error {
	for _, d := range []string{l.opt.Dir, runDir(l.opt.Dir, l.opt.Header.Run)} {
		if err := l.opt.fs.Mkdir(d); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("event log: %w", err)
		}
	}
	return l.openPart()
}

func (l *file) close() error {
	if l.f == nil {
		return nil
	}
	return errors.Join(l.f.Sync(), l.f.Close())
}

func (l *file) path(part int) string {
	return filepath.Join(runDir(l.opt.Dir, l.opt.Header.Run), l.name(l.opt.Rank, part))
}

// openPart starts the next file, with the headers, and forgets the one before the
// last.
func (l *file) openPart() error {
	if l.f != nil {
		if err := l.f.Close(); err != nil {
			return fmt.Errorf("event log: %w", err)
		}
		l.f = nil
		l.part++
		if old := l.part - 2; old >= 0 {
			if err := l.opt.fs.Remove(l.path(old)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("event log: %w", err)
			}
		}
	}
	f, err := l.opt.fs.Create(l.path(l.part), false)
	if err != nil {
		return fmt.Errorf("event log: %w", err)
	}
	l.f, l.at, l.alive, l.dirty = f, 0, nil, 0
	var lines bytes.Buffer
	for _, h := range l.heads {
		b, herr := l.headLine(h, l.part > 0)
		err = errors.Join(err, herr)
		lines.Write(b)
	}
	if err == nil {
		err = l.append(lines.Bytes())
	}
	if err != nil { // without its first line it is no log: open tries again
		err = errors.Join(err, l.f.Close(), l.opt.fs.Remove(l.path(l.part)))
		l.f = nil
	}
	return err
}

// headLine returns the first line of a rank in this part; again marks a part after the first.
func (l *file) headLine(h Event, again bool) ([]byte, error) {
	own := *h.Header
	own.Part, h.Header = l.part, &own
	if again {
		now := time.Now().UnixNano()
		h.Wall, h.Mono, h.Begin = now, max(now-h.Wall, 0), false
	}
	return h.line()
}

// join adds a rank to the log.
func (l *file) join(h Event) error {
	if l.f == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	b, err := l.headLine(h, false)
	if err == nil {
		l.settle()
		err = l.append(b)
	}
	if err == nil {
		l.heads = append(l.heads, h)
	}
	return err
}

// write appends events and returns how many of them are in the file. A sign of life right after another of the same
// rank replaces it.
func (l *file) write(batch []Event) (written int, err error) {
	if l.f == nil {
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	var lines bytes.Buffer
	flush := func(upTo int) error {
		if lines.Len() > 0 {
			l.settle()
		}
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
			if err := l.writeAlive(e.Rank, b); err != nil {
				return written, err
			}
			if e.Lost > 0 { // its count of missing lines must stay
				l.settle()
			}
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

// append writes whole lines. If it fails the file may have any part of them behind at; the next lines overwrite it, and
// fill the rest.
func (l *file) append(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	end := l.at + int64(len(b))
	if _, err := l.f.WriteAt(b, l.at); err != nil {
		l.dirty = max(l.dirty, end)
		return fmt.Errorf("event log: %w", err)
	}
	if l.dirty > end {
		fill, err := l.filler(int(l.dirty - end))
		if err == nil {
			_, err = l.f.WriteAt(fill, end)
		}
		if err != nil {
			l.dirty = max(l.dirty, end+int64(len(fill)))
			return fmt.Errorf("event log: %w", err)
		}
		end += int64(len(fill))
	}
	l.at, l.dirty = end, 0
	return nil
}

// filler is lines of at least n bytes together that readers pass over.
func (l *file) filler(n int) ([]byte, error) {
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

// writeAlive writes a sign of life in the place of the rank's last one, if nothing but signs
// of life has come since.
func (l *file) writeAlive(rank int, b []byte) error {
	if pad := aliveWidth - len(b); pad > 0 {
		b = append(append(b[:len(b)-1], bytes.Repeat([]byte(" "), pad)...), '\n')
	}
	i := slices.IndexFunc(l.alive, func(a aliveLine) bool { return a.rank == rank })
	if i >= 0 && len(l.alive[i].line) != len(b) {
		l.settle()
		i = -1
	}
	lines := slices.Clone(l.alive)
	if i >= 0 {
		lines[i] = aliveLine{rank, b}
	} else {
		lines = append(lines, aliveLine{rank, b})
	}
	at, old := l.at, l.blockBytes()
	var block []byte
	for _, a := range lines {
		block = append(block, a.line...)
	}
	l.dirty, l.alive = max(l.dirty, at+old), nil
	if err := l.append(block); err != nil {
		return err
	}
	if l.at == at+int64(len(block)) { // otherwise it had to fill the bytes behind, and stays
		l.at, l.alive = at, lines
	}
	return nil
}

// blockBytes returns how long the signs of life behind at are.
func (l *file) blockBytes() (n int64) {
	for _, a := range l.alive {
		n += int64(len(a.line))
	}
	return n
}

// settle keeps the signs of life: something else follows them.
func (l *file) settle() {
	l.at += l.blockBytes()
	l.alive = nil
}
