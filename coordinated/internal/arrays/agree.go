package arrays

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// The first byte of a rank's report on its arrays.
const (
	reportLayout  = 1 // a rank's layout follows, nothing if it declares no array
	reportError   = 2 // the reason follows, or comes later
	reportVerdict = 3 // the outcome follows, nothing if all is well
)

// ErrNotDeclared is the error of a rank that has declared something while another has failed.
var ErrNotDeclared = errors.New("another rank has failed")

// Failed returns the report of a rank that cannot describe its arrays; nil: it gives the reason later.
func Failed(err error) []byte {
	report := []byte{reportError}
	if err != nil {
		report = append(report, err.Error()...)
	}
	return report
}

// sayLayout encodes a rank's report on its arrays.
func sayLayout(l *storage.Layout) ([]byte, error) {
	b, err := l.Encode()
	return append([]byte{reportLayout}, b...), err
}

// Nothing returns the report of a rank that declares nothing.
func Nothing() []byte { return []byte{reportLayout} }

// Judge compares the declarations of all ranks, and puts the verdict in the first blob. It leaves a verdict as it is.
func Judge(blobs []cut.Blob) []cut.Blob {
	return judge(blobs, func() []byte { return encodeVerdict(checkDeclared(blobs)) })
}

func judge(blobs []cut.Blob, outcome func() []byte) []cut.Blob {
	if len(blobs) == 0 || isVerdict(blobs) {
		return blobs
	}
	out := make([]cut.Blob, len(blobs))
	for i := range blobs {
		out[i].Rank = blobs[i].Rank
	}
	out[0].Data = append([]byte{reportVerdict}, outcome()...)
	return out
}

func isVerdict(blobs []cut.Blob) bool {
	return len(blobs) > 0 && len(blobs[0].Data) > 0 && blobs[0].Data[0] == reportVerdict
}

// Verdict returns the error that Judge found, or nil.
func Verdict(blobs []cut.Blob) error {
	if !isVerdict(blobs) {
		return errors.New("no outcome of the comparison of arrays")
	}
	return decodeVerdict(blobs[0].Data[1:])
}

func checkDeclared(blobs []cut.Blob) error {
	declared := make([]*storage.Layout, len(blobs))
	some := false
	for i, b := range blobs {
		declared[i] = &storage.Layout{}
		if len(b.Data) == 1 && b.Data[0] == reportError {
			return ErrNotDeclared
		}
		if len(b.Data) < 2 {
			continue
		}
		if b.Data[0] == reportError {
			return fmt.Errorf("rank %d: %s", b.Rank, b.Data[1:])
		}
		l, err := storage.DecodeLayout(b.Rank, b.Data[1:])
		if err != nil {
			return err
		}
		declared[i], some = l, true
	}
	if !some {
		return nil
	}
	return storage.CheckLayouts(declared)
}

// notDeclared is the outcome ErrNotDeclared.
const notDeclared = "\x00"

func encodeVerdict(err error) []byte {
	switch err {
	case nil:
		return nil
	case ErrNotDeclared:
		return []byte(notDeclared)
	}
	return []byte(cmp.Or(err.Error(), "the arrays do not fit together"))
}

func decodeVerdict(b []byte) error {
	switch string(b) {
	case "":
		return nil
	case notDeclared:
		return ErrNotDeclared
	}
	return errors.New(string(b))
}

// current describes an array that changes, on one rank.
type current struct {
	list bool
	dims []int64 // of a list, the rank's length
}

func (x *current) String() string {
	if x.list {
		return "of a List"
	}
	return fmt.Sprint(x.dims)
}

// Divided asks the program how it divides arrays that change, and encodes the answer: for each array, by name, the
// number of dimensions, 0 for a list, and the dimensions, or the rank's length of the list.
func (p *Protected) Divided() ([]byte, error) {
	w := codec.Writer{B: []byte{reportLayout}}
	for _, g := range p.changing() {
		d, err := g.changing.Now()
		if err == nil {
			err = g.divide(&d)
		}
		if err != nil {
			return nil, fmt.Errorf("capture %q: %w", g.local.Name, err)
		}
		n := len(d.Dims)
		if d.List {
			n = 0
		}
		w.Uint(uint64(n))
		for _, dim := range d.Dims {
			w.Uint(uint64(dim))
		}
	}
	return w.B, nil
}

// JudgeDivided compares the ranks' answers of Divided, and puts the outcome in the first blob: an error, or nothing and
// then the lengths of each list on all ranks. It leaves an outcome as it is.
func (p *Protected) JudgeDivided(blobs []cut.Blob) []cut.Blob {
	return judge(blobs, func() []byte {
		lengths, err := p.compareDivided(blobs)
		var w codec.Writer
		w.Bytes(encodeVerdict(err))
		for _, list := range lengths {
			w.Uint(uint64(len(list)))
			for _, n := range list {
				w.Uint(uint64(n))
			}
		}
		return w.B
	})
}

// compareDivided returns the lengths of each list, by array; nil for other arrays.
func (p *Protected) compareDivided(blobs []cut.Blob) (lengths [][]int64, err error) {
	arrays := p.changing()
	lengths = make([][]int64, len(arrays))
	first := make([]current, len(arrays))
	for i := range blobs {
		b := blobs[i].Data
		if len(b) > 0 && b[0] == reportError {
			return nil, fmt.Errorf("rank %d: %s", blobs[i].Rank, b[1:])
		}
		r := codec.Reader{B: b[min(len(b), 1):]}
		for k, g := range arrays {
			n := r.Small(layout.MaxDims)
			x := current{list: n == 0}
			for range max(n, 1) {
				x.dims = append(x.dims, int64(r.Uint()))
			}
			name := g.local.Name
			if r.Err != nil {
				return nil, fmt.Errorf("what rank %d says of array %q cannot be read", blobs[i].Rank, name)
			}
			switch {
			case i == 0:
				first[k] = x
			case x.list != first[k].list || !x.list && !slices.Equal(x.dims, first[k].dims):
				return nil, &layout.DiffersError{Array: name, What: "dimensions", Want: first[k].String(),
					Have: x.String(), Ranks: [2]int{blobs[0].Rank, blobs[i].Rank}}
			}
			if x.list {
				lengths[k] = append(lengths[k], x.dims[0])
			}
		}
	}
	return lengths, nil
}

// Place reads an outcome of JudgeDivided, and puts this rank's elements of lists behind those of the ranks before.
func (p *Protected) Place(blobs []cut.Blob, rank int) error {
	bad := errors.New("the outcome of the comparison of arrays that change cannot be read")
	if !isVerdict(blobs) {
		return bad
	}
	in := codec.Reader{B: blobs[0].Data[1:]}
	if err := decodeVerdict(in.Bytes()); err != nil {
		return err
	}
	arrays := p.changing()
	begin, total := make([]int64, len(arrays)), make([]int64, len(arrays))
	for i := range arrays {
		for r := range in.Small(len(blobs)) {
			n := int64(in.Uint())
			if r < rank {
				begin[i] += n
			}
			total[i] += n
		}
	}
	if in.End() != nil {
		return bad
	}
	for i, g := range arrays {
		if !g.changing.list {
			continue
		}
		g.local.Dims = []int64{total[i]}
		for k := range g.blocks {
			own := g.blocks[k].Part.Spans[0][0]
			g.blocks[k].Part = layout.Box([]int64{begin[i]}, []int64{own.Count})
		}
		if err := g.changed(); err != nil {
			return fmt.Errorf("capture %q: %w", g.local.Name, err)
		}
	}
	return nil
}
