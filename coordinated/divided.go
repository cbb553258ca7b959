package coordinated

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// stageDivided is the stage of a cut in which ranks say how arrays are divided that change.
const stageDivided = "divided"

// divided asks the program how arrays that change are divided now, and compares it with the other ranks': their
// dimensions are alike, and the parts of a list follow each other. Where nothing changes it returns at once, and costs
// nothing. A rank that has failed before does not wait for the others, but lets them go.
func (c *Checkpointer) divided(ctx context.Context, es *EpochStats, failed error) error {
	if !c.state.Changes() {
		return failed
	}
	var now []capture.Current
	err := failed
	if err == nil {
		now, err = c.state.Look()
	}
	if err != nil {
		data := append([]byte{declaredNot}, err.Error()...)
		return errors.Join(err, c.agent.Contribute(c.life.ctx, cut.Epoch(es.Epoch), stageDivided, data))
	}
	names := make([]string, len(now))
	w := codec.Writer{B: []byte{declaredLayout}}
	for i := range now {
		names[i] = now[i].Name
		writeCurrent(&w, &now[i])
	}
	brief := func(blobs []cut.Blob) []cut.Blob { return judgeDivided(names, blobs) }
	blobs, err := c.agent.Meet(ctx, cut.Meeting{Epoch: cut.Epoch(es.Epoch), Stage: stageDivided, Data: w.B,
		Brief: brief, Whole: func(int) bool { return false }})
	if err != nil {
		return fmt.Errorf("compare how arrays are divided: %w", err)
	}
	begin, total, err := decodeDivided(brief(blobs), c.topo.Rank, len(now))
	if err != nil {
		return err
	}
	return c.state.Place(begin, total)
}

// writeCurrent writes the number of dimensions, 0 for a list, and the dimensions, or the rank's length of the list.
func writeCurrent(w *codec.Writer, a *capture.Current) {
	n := len(a.Dims)
	if a.List {
		n = 0
	}
	w.Uint(uint64(n))
	for _, d := range a.Dims {
		w.Uint(uint64(d))
	}
}

// current is what a rank has said of an array.
type current struct {
	list bool
	dims []int64
}

func (x *current) String() string {
	if x.list {
		return "of a List"
	}
	return fmt.Sprint(x.dims)
}

func readCurrent(r *codec.Reader) (x current) {
	n := r.Small(layout.MaxDims)
	x.list = n == 0
	for range max(n, 1) {
		x.dims = append(x.dims, int64(r.Uint()))
	}
	return x
}

// judgeDivided makes an outcome of what all ranks say, in the first blob: an error, or nothing and then of each list
// the lengths of all ranks. An outcome stays as it is.
func judgeDivided(names []string, blobs []cut.Blob) []cut.Blob {
	if len(blobs) == 0 || len(blobs[0].Data) > 0 && blobs[0].Data[0] == declaredVerdict {
		return blobs
	}
	out := make([]cut.Blob, len(blobs))
	for i := range blobs {
		out[i].Rank = blobs[i].Rank
	}
	lengths, err := compareDivided(names, blobs)
	w := codec.Writer{B: []byte{declaredVerdict}}
	w.Bytes(encodeVerdict(err))
	for _, list := range lengths {
		w.Uint(uint64(len(list)))
		for _, n := range list {
			w.Uint(uint64(n))
		}
	}
	out[0].Data = w.B
	return out
}

// compareDivided returns the lengths of each list, by array; nil of what is none.
func compareDivided(names []string, blobs []cut.Blob) (lengths [][]int64, err error) {
	lengths = make([][]int64, len(names))
	first := make([]current, len(names))
	for i := range blobs {
		b := blobs[i].Data
		if len(b) > 0 && b[0] == declaredNot {
			return nil, fmt.Errorf("rank %d: %s", blobs[i].Rank, b[1:])
		}
		r := codec.Reader{B: b[min(len(b), 1):]}
		for k, name := range names {
			x := readCurrent(&r)
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

// decodeDivided reads an outcome: where in each list a rank's elements begin, and how long the lists are.
func decodeDivided(blobs []cut.Blob, rank, arrays int) (begin, total []int64, err error) {
	bad := errors.New("coordinated: the outcome of the comparison of arrays that change cannot be read")
	if len(blobs) == 0 || len(blobs[0].Data) == 0 {
		return nil, nil, bad
	}
	in := codec.Reader{B: blobs[0].Data[1:]}
	if err := decodeVerdict(in.Bytes()); err != nil {
		return nil, nil, err
	}
	begin, total = make([]int64, arrays), make([]int64, arrays)
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
		return nil, nil, bad
	}
	return begin, total, nil
}

// planned has the program say what it wants of the arrays of an epoch that change, and makes sure that all ranks
// together want each element once: what fell into a hole would be lost. Not ready: another rank has failed, which the
// vote will say.
func (c *Checkpointer) planned(ctx context.Context, src *shards, a *capture.Load, e storage.Epoch,
	failed error) (ready bool, err error) {
	if !c.state.Changes() {
		return failed == nil, failed
	}
	data, err := []byte{declaredNot}, failed
	if err == nil {
		var l *storage.Layout
		var b []byte
		if l, err = a.Plan(ctx, src); err == nil {
			b, err = l.Encode()
		}
		if err == nil {
			data = append([]byte{declaredLayout}, b...)
		}
	}
	verdict, merr := c.meetDeclared(cut.Epoch(e), "division", data)
	switch {
	case err != nil || merr != nil:
		return false, errors.Join(err, merr)
	case errors.Is(verdict, errNotDeclared):
		return false, nil
	case verdict != nil:
		return false, &divisionError{verdict}
	}
	return true, nil
}

// divisionError says that what the ranks want of an array does not fit together: no other epoch would help.
type divisionError struct{ error }

func (e *divisionError) Unwrap() error { return e.error }
