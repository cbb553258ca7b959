package arrays

import (
	"sort"

	"github.com/holdfast-hpc/holdfast/internal/layout"
)

// target is where pieces of a section go.
type target interface {
	// direct is the memory from an offset on, or nil if put has to copy.
	direct(to, n int64) []byte
	// put copies pieces to their places; scratch begins with byte base of the section.
	put(list []piece, scratch []byte, base int64) error
}

type toMemory []byte

func (m toMemory) direct(to, n int64) []byte { return m[to:][:n] }

func (m toMemory) put(list []piece, scratch []byte, base int64) error {
	for _, p := range list {
		copy(m[p.to:p.to+p.n], scratch[p.from-base:])
	}
	return nil
}

// nowhere is for bytes that are only verified.
type nowhere struct{}

func (nowhere) direct(_, _ int64) []byte               { return nil }
func (nowhere) put(_ []piece, _ []byte, _ int64) error { return nil }

// piece is a run of bytes at an offset of a section, and its destination in memory.
type piece struct{ from, to, n int64 }

// wants lists the pieces that this rank wants and a rank of the epoch has.
func (g *array) wants(saved *layout.Local) (list []piece, err error) {
	base, size := int64(0), g.local.Elem
	for i := range saved.Parts {
		src := &saved.Parts[i]
		for k := range g.blocks {
			b := &g.blocks[k]
			if !layout.Reaches(src, &b.Part) {
				continue
			}
			err := layout.Meet(src, layout.Dense(src, base), &b.Part, b.At, func(from, to, n int64) error {
				if len(list) >= layout.MaxSpans {
					return &layout.LimitError{Runs: int64(len(list))}
				}
				list = append(list, piece{from * size, to * size, n * size})
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		base += src.Elems()
	}
	return list, nil
}

const (
	readUnit  = 256 << 10 // bytes that are verified together: the length of a chunk
	mostRead  = 8 << 20   // bytes of small pieces that are read at once
	readAlone = 1 << 20   // from how many bytes on a run goes straight to its place
)

// readPieces has the pieces of a section read to their places. Whole units of long pieces go there directly. The rest
// is read together with its neighbours, so no unit is read twice.
func readPieces(list []piece, t target, read func(dst []byte, off int64) error) error {
	var small []piece
	add := func(p piece, from, to int64) {
		for from < to { // groups of small pieces end at such a boundary
			n := min(to, (from/mostRead+1)*mostRead) - from
			small = append(small, piece{from, p.to + from - p.from, n})
			from += n
		}
	}
	var scratch []byte
	for _, p := range list {
		end := p.from + p.n
		lo, hi := (p.from+readUnit-1)/readUnit*readUnit, end/readUnit*readUnit
		if hi-lo < readAlone {
			add(p, p.from, end)
			continue
		}
		add(p, p.from, lo)
		add(p, hi, end)
		for at := lo; at < hi; at += mostRead {
			n := min(mostRead, hi-at)
			dst := t.direct(p.to+at-p.from, n)
			straight := dst != nil
			if !straight {
				dst = room(&scratch, n)
			}
			if err := read(dst, at); err != nil {
				return err
			}
			if straight {
				continue
			}
			if err := t.put([]piece{{at, p.to + at - p.from, n}}, dst, at); err != nil {
				return err
			}
		}
	}
	return readSmall(small, t, scratch, read)
}

// readSmall reads pieces in groups that lie near each other.
func readSmall(list []piece, t target, scratch []byte, read func(dst []byte, off int64) error) error {
	sort.Slice(list, func(i, j int) bool {
		return list[i].from < list[j].from || list[i].from == list[j].from && list[i].to < list[j].to
	})
	for len(list) > 0 {
		first, end, n := list[0].from, list[0].from, 0
		limit := (first/mostRead + 1) * mostRead
		for n < len(list) && list[n].from < limit && list[n].from/readUnit <= end/readUnit+1 {
			end = max(end, list[n].from+list[n].n)
			n++
		}
		group := room(&scratch, end-first)
		if err := read(group, first); err != nil {
			return err
		}
		if err := t.put(list[:n], group, first); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// room makes the memory n bytes long.
func room(mem *[]byte, n int64) []byte {
	if int64(len(*mem)) < n {
		*mem = make([]byte, max(n, readAlone))
	}
	return (*mem)[:n]
}
