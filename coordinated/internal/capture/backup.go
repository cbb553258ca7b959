package capture

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"unsafe"
)

// backup holds the previous contents of the program's memory during a restore, in the pool that captures will need
// anyway. Pages of zeros cost nothing. Pages that the program never touched are not even read: that would map them.
type backup struct {
	pool    *pool
	workers int
	pages   *os.File // which pages were touched; nil: not known, all are looked at
	plain   []span   // address ranges of private memory, not of a file
	saved   map[stretch]func()
}

// stretch is a piece of memory. Its saved contents stay true for the next attempt: a failed attempt is undone.
type stretch struct {
	at *byte
	n  int
}

type span struct{ from, to uintptr }

// lookFrom is from how many bytes on it is worth asking which pages were touched.
const lookFrom = 1 << 20

func newBackup(p *pool, workers int) *backup {
	return &backup{pool: p, workers: workers, saved: map[stretch]func(){}}
}

// save copies mem; back restores it. It is nil without room in the pool.
func (k *backup) save(mem []byte) (back func()) {
	if len(mem) == 0 {
		return func() {}
	}
	id := stretch{unsafe.SliceData(mem), len(mem)}
	if back = k.saved[id]; back == nil {
		if back = k.copy(mem); back != nil {
			k.saved[id] = back
		}
	}
	return back
}

func (k *backup) copy(mem []byte) (back func()) {
	var full []Copy // src is a stretch of mem that is not zero
	var n int
	for _, piece := range k.touched(mem) {
		for _, run := range notZero(piece) {
			full = append(full, Copy{Src: run})
			n += len(run)
		}
	}
	var room []byte
	if n < InlineBytes { // there may be many of these
		room = make([]byte, n)
	} else if room = k.pool.Alloc(n); room == nil {
		return nil
	}
	for i := range full {
		full[i].Dst, room = room[:len(full[i].Src)], room[len(full[i].Src):]
	}
	copyAll(full, k.workers)
	return func() {
		clear(mem)
		for _, j := range full {
			copy(j.Src, j.Dst)
		}
	}
}

// notZero returns the stretches of b, in pages, that are not zero.
func notZero(b []byte) (runs [][]byte) {
	var zeros [pageBytes]byte
	from := -1
	for off := 0; off < len(b); off += pageBytes {
		page := b[off:min(off+pageBytes, len(b))]
		switch zero := bytes.Equal(page, zeros[:len(page)]); {
		case zero && from >= 0:
			runs = append(runs, b[from:off])
			from = -1
		case !zero && from < 0:
			from = off
		}
	}
	if from >= 0 {
		runs = append(runs, b[from:])
	}
	return runs
}

// touched returns the parts of mem whose pages exist. The others hold zeros.
func (k *backup) touched(mem []byte) [][]byte {
	if len(mem) < lookFrom || !k.look(mem) {
		return [][]byte{mem}
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	var out [][]byte
	entries := make([]byte, 8<<10)
	for off := 0; off < len(mem); {
		page := (start + uintptr(off)) / pageBytes
		n, _ := k.pages.ReadAt(entries[:min(len(entries), 8*((len(mem)-off)/pageBytes+2))], int64(page)*8)
		if n < 8 { // unknown contents are read
			return append(out, mem[off:])
		}
		for i := 0; i+8 <= n && off < len(mem); i += 8 {
			end := min(int((page+1)*pageBytes-start), len(mem))
			if there := binary.NativeEndian.Uint64(entries[i:])>>62 != 0; there { // in memory or swapped out
				out = joined(out, mem[off:end])
			}
			off, page = end, page+1
		}
	}
	return out
}

// joined appends a piece, as part of the last one if it follows that.
func joined(list [][]byte, piece []byte) [][]byte {
	if n := len(list); n > 0 {
		last := list[n-1]
		if len(last) < cap(last) && &last[:len(last)+1][len(last)] == &piece[0] {
			list[n-1] = last[:len(last)+len(piece)]
			return list
		}
	}
	return append(list, piece)
}

// look reports whether the system can tell which pages of mem were touched.
func (k *backup) look(mem []byte) bool {
	if k.plain == nil {
		k.plain = privateMemory()
		k.pages, _ = os.Open("/proc/self/pagemap") // without it all pages are looked at
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	to := from + uintptr(len(mem))
	return k.pages != nil && slices.ContainsFunc(k.plain, func(s span) bool { return s.from <= from && to <= s.to })
}

// privateMemory lists the mappings of this process that are its own and no file's,
// neighbours as one.
func privateMemory() []span {
	list := []span{}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return list
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var s span
		var mode, dev string
		var off, inode uint64
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d", &s.from, &s.to, &mode, &off, &dev, &inode); n != 6 ||
			inode != 0 || len(mode) != 4 || mode[3] != 'p' {
			continue
		}
		if n := len(list); n > 0 && list[n-1].to == s.from {
			list[n-1].to = s.to
			continue
		}
		list = append(list, s)
	}
	return list
}

func (k *backup) close() {
	if k.pages != nil {
		_ = k.pages.Close() // it was only read
	}
	k.pages, k.plain = nil, nil
}
