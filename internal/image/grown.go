package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// is reports whether a file is one that is open.
func (f *file) is(own *os.File) bool {
	if own == nil {
		return false
	}
	st, err := own.Stat()
	there, e := os.Stat(f.Path)
	return err == nil && e == nil && os.SameFile(st, there)
}

// now returns the length of a file; one that has gone has the old one.
func (f *file) now() int64 {
	st, err := os.Stat(f.Path)
	if err != nil {
		return f.Bytes
	}
	return st.Size()
}

// rest is what was behind the length that a file is to have, in a file beside it: a restore that is killed loses none.
type rest struct {
	file
	kept *os.File
}

// keptName is behind the name of a file, in that of what was cut from it.
const keptName = ".cut-"

// behind keeps what files have behind the length that they had.
func behind(files []file) (list []rest, err error) {
	defer func() {
		if err != nil {
			for _, r := range list {
				err = errors.Join(err, r.drop()) // nothing has been cut
			}
			list = nil
		}
	}()
	for _, f := range files {
		from, e := os.Open(f.Path)
		if e != nil {
			return list, e
		}
		defer from.Close()
		kept, e := os.CreateTemp(filepath.Dir(f.Path), filepath.Base(f.Path)+keptName)
		if e != nil {
			return list, e
		}
		list = append(list, rest{f, kept})
		if _, err = from.Seek(f.Bytes, io.SeekStart); err == nil {
			_, err = io.Copy(kept, from)
		}
		if err != nil {
			return list, err
		}
	}
	return list, nil
}

// back gives a file all that it had.
func (r *rest) back() error {
	to, err := os.OpenFile(r.Path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, e := r.kept.Seek(0, io.SeekStart)
	_, at := to.Seek(r.Bytes, io.SeekStart)
	if err = errors.Join(e, at, to.Truncate(r.Bytes)); err == nil {
		_, err = io.Copy(to, r.kept)
	}
	return errors.Join(err, to.Close())
}

func (r *rest) drop() error { return errors.Join(os.Remove(r.kept.Name()), r.kept.Close()) }

// shorten gives files the length that they had.
func shorten(files []file) error {
	for _, f := range files {
		if err := os.Truncate(f.Path, f.Bytes); err != nil {
			return err
		}
		if f.Time != 0 {
			_ = os.Chtimes(f.Path, time.Time{}, time.Unix(0, f.Time)) // else it counts as written in place
		}
	}
	return nil
}

// changed says what has become of a file since the image was taken, within the length that it had. The text is empty if
// its time is the same. A copy may have lost the fraction of a second.
func (f *file) changed(own *os.File) string {
	st, err := os.Stat(f.Path)
	if err != nil || f.Time == 0 || st.Size() != f.Bytes || f.is(own) {
		return ""
	}
	now, then := st.ModTime(), time.Unix(0, f.Time)
	switch {
	case !f.Read && now.After(then):
		return f.Path + " was written to since the image was taken: the program finds what is there now"
	case f.Read && !now.Equal(then) && !(now.Nanosecond() == 0 && now.Unix() == then.Unix()):
		return f.Path + ", which the program reads, is of " + now.Format(time.DateTime) + " and was of " +
			then.Format(time.DateTime) + " when the image was taken: it finds what is there now"
	}
	return ""
}

// filesImage is CRIU's list of open files: two words, then entries, each a u32 length and a message of Protocol
// Buffers.
const filesImage = "files.img"

var errFiles = errors.New(filesImage + " is not as CRIU writes it")

// adapt writes CRIU's list as lengthened returns it: CRIU takes files as they are that have grown. now has the position
// of a process that writes and was at the end of one. A process that reads goes on from its old position.
func adapt(path string, now map[string]int64) error {
	was, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b, err := lengthened(was, now)
	if err != nil || bytes.Equal(b, was) {
		return err
	}
	return errors.Join(os.Remove(path), os.WriteFile(path, b, 0o600)) // it may be a link
}

// Fields of CRIU's messages.
const (
	entryReg = 3 // of file_entry, a reg_file_entry
	regFlags = 2
	regPos   = 3
	regName  = 6
	regSize  = 8

	entryTimer    = 12 // of file_entry, a timerfd_entry
	timerClock    = 4
	timerTicks    = 5
	timerValue    = 7 // two numbers, seconds and nanoseconds
	timerInterval = 9
)

// lengthened returns the list for files that have other lengths now, with timers that tick on.
func lengthened(b []byte, now map[string]int64) ([]byte, error) {
	list, err := entries(b)
	if err != nil {
		return nil, err
	}
	out := b[:magics:magics]
	for _, e := range list {
		var entry []byte
		if err := fields(e, func(f field) {
			switch f.number {
			case entryReg:
				f.bytes = regular(f.bytes, now)
			case entryTimer:
				f.bytes = ticking(f.bytes)
			}
			entry = f.append(entry)
		}); err != nil {
			return nil, err
		}
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(entry))), entry...)
	}
	return out, nil
}

// magics precede the entries of the list, in bytes.
const magics = 8

func entries(b []byte) (list [][]byte, err error) {
	if len(b) < magics {
		return nil, errFiles
	}
	for b = b[magics:]; len(b) > 0; {
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return nil, errFiles
		}
		n := 4 + int(binary.LittleEndian.Uint32(b))
		list, b = append(list, b[4:n]), b[n:]
	}
	return list, nil
}

// measure gives files the lengths that they had when CRIU saved the processes. One that uses no OpenCL may have written
// since it was looked at.
func (r *record) measure(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	list, err := entries(b)
	for _, e := range list {
		var bad error
		all := fields(e, func(f field) {
			switch f.number {
			case entryReg:
				bad = r.measured(f.bytes)
			case entryTimer:
				bad = known(f.bytes)
			}
		})
		err = errors.Join(err, bad, all)
	}
	return err
}

// measured reads a reg_file_entry. It has no length for a file that is only appended to; one that has written to it
// since is at the end of what it wrote.
func (r *record) measured(b []byte) error {
	var name string
	var flags uint64
	size, pos := int64(-1), int64(0)
	err := fields(b, func(f field) {
		switch f.number {
		case regFlags:
			flags = f.value
		case regPos:
			pos = int64(f.value)
		case regName:
			name = string(f.bytes)
		case regSize:
			size = int64(f.value)
		}
	})
	for i := range r.Files {
		f := &r.Files[i]
		if f.Path == name && size >= 0 {
			f.Bytes = size
		} else if f.Path == name && flags&unix.O_APPEND != 0 {
			f.Bytes = max(f.Bytes, min(pos, f.now()))
		}
	}
	return err
}

// regular returns a reg_file_entry as it is now; one that cannot be read stays.
func regular(b []byte, now map[string]int64) []byte {
	var out []byte
	var name string
	var flags, pos, size uint64
	err := fields(b, func(f field) {
		switch f.number {
		case regFlags:
			flags = f.value
		case regPos:
			pos = f.value
			return
		case regSize:
			size = f.value
			return // without it CRIU takes any length
		case regName:
			name = string(f.bytes)
		}
		out = f.append(out)
	})
	end, found := now[name]
	if err != nil || !found {
		return b
	}
	if pos == size && flags&unix.O_ACCMODE != unix.O_RDONLY {
		pos = uint64(end)
	}
	return field{number: regPos, value: pos}.append(out)
}

// known refuses a timerfd_entry that CRIU writes, but does not restore.
func known(b []byte) (err error) {
	bad := fields(b, func(f field) {
		if f.number == timerClock && f.value != unix.CLOCK_REALTIME && f.value != unix.CLOCK_MONOTONIC {
			err = fmt.Errorf("it has a timer (timerfd) of clock %d, and CRIU restores those of CLOCK_REALTIME and "+
				"CLOCK_MONOTONIC", f.value)
		}
	})
	return errors.Join(bad, err)
}

// ticking returns a timerfd_entry whose timer goes on. The kernel starts a periodic one again when its ticks are read,
// and until then gives its next one as 0. CRIU would set that, which ends the timer.
func ticking(b []byte) []byte {
	var out []byte
	var has [timerInterval + 2]uint64
	err := fields(b, func(f field) {
		if f.number < len(has) {
			has[f.number] = f.value
		}
	})
	if err != nil || has[timerTicks] == 0 || has[timerValue]+has[timerValue+1] != 0 {
		return b
	}
	_ = fields(b, func(f field) { // it was read above
		if f.number == timerValue || f.number == timerValue+1 {
			f.value = has[f.number-timerValue+timerInterval]
		}
		out = f.append(out)
	})
	return out
}

// field is one of a message: a number, or bytes.
type field struct {
	number int
	kind   uint64
	value  uint64
	bytes  []byte
}

const byNumber, byBytes = 0, 2 // kinds

func (f field) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.number)<<3|f.kind)
	if f.kind == byBytes {
		return append(binary.AppendUvarint(b, uint64(len(f.bytes))), f.bytes...)
	}
	return binary.AppendUvarint(b, f.value)
}

func fields(b []byte, each func(f field)) error {
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			b = nil
			return ^uint64(0)
		}
		b = b[n:]
		return v
	}
	for len(b) > 0 {
		key := next()
		f := field{number: int(key >> 3), kind: key & 7, value: next()}
		switch {
		case f.kind == byBytes && f.value <= uint64(len(b)):
			f.bytes, b = b[:f.value], b[f.value:]
		case f.kind != byNumber:
			return errFiles
		}
		each(f)
	}
	return nil
}
