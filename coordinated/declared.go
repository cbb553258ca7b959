package coordinated

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// compareDeclared makes sure, before anything is restored, that what the ranks declare of arrays fits together: what
// every checkpoint would fail with ends the program now, on all ranks alike. Rank 0 compares; the others hear the
// outcome. A program in another process declares its arrays at each checkpoint anew, so only that checks them.
func (c *Checkpointer) compareDeclared() error {
	data := []byte{declaredLayout}
	if c.main.far == nil {
		mine, err := c.state.Declared()
		data = append(data, mine...)
		if err != nil {
			data = append([]byte{declaredNot}, err.Error()...)
		}
	}
	verdict, err := c.meetDeclared(0, "arrays", data)
	return errors.Join(verdict, err)
}

// meetDeclared compares what the ranks declare at a stage of Restore, and returns what is wrong with it.
func (c *Checkpointer) meetDeclared(e cut.Epoch, stage string, data []byte) (verdict, err error) {
	c.main.Meeting.Store(true)
	defer c.main.Meeting.Store(false)
	blobs, err := c.agent.Meet(c.life.ctx, cut.Meeting{Epoch: e, Stage: agent.StageRestore + stage,
		Data: data, Brief: judgeDeclared, Whole: func(int) bool { return false }})
	if err != nil {
		return nil, err
	}
	if len(blobs) == 0 || len(blobs[0].Data) == 0 || blobs[0].Data[0] != declaredVerdict {
		return nil, errors.New("coordinated: no outcome of the comparison of arrays")
	}
	return decodeVerdict(blobs[0].Data[1:]), nil
}

// errNotDeclared is what a rank hears that has declared something where another has failed.
var errNotDeclared = errors.New("another rank has failed")

// The first byte of what is said at the stage.
const (
	declaredLayout  = 1 // a rank's layout follows, nothing if it declares no array
	declaredNot     = 2 // why there is none follows, if the rank does not say so later
	declaredVerdict = 3 // the outcome follows, nothing if all is well
)

// judgeDeclared makes a verdict of what all ranks declare, in the first blob. A verdict stays as it is.
func judgeDeclared(blobs []cut.Blob) []cut.Blob {
	if len(blobs) == 0 || len(blobs[0].Data) > 0 && blobs[0].Data[0] == declaredVerdict {
		return blobs
	}
	out := make([]cut.Blob, len(blobs))
	for i := range blobs {
		out[i].Rank = blobs[i].Rank
	}
	out[0].Data = append([]byte{declaredVerdict}, encodeVerdict(checkDeclared(blobs))...)
	return out
}

func checkDeclared(blobs []cut.Blob) error {
	declared := make([]*storage.Layout, len(blobs))
	some := false
	for i, b := range blobs {
		declared[i] = &storage.Layout{}
		if len(b.Data) == 1 && b.Data[0] == declaredNot {
			return errNotDeclared
		}
		if len(b.Data) < 2 {
			continue
		}
		if b.Data[0] == declaredNot {
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

// verdict carries the errors of layouts to all ranks.
type verdict struct {
	Hole    *layout.HoleError    `json:",omitempty"`
	Overlap *layout.OverlapError `json:",omitempty"`
	Differs *layout.DiffersError `json:",omitempty"`
	Shape   *layout.ShapeError   `json:",omitempty"`
	Not     bool                 `json:",omitempty"` // it is errNotDeclared
	Text    string               // of others
}

func encodeVerdict(err error) []byte {
	if err == nil {
		return nil
	}
	v := verdict{Text: err.Error(), Not: err == errNotDeclared}
	_ = errors.As(err, &v.Hole) || errors.As(err, &v.Overlap) || errors.As(err, &v.Differs) ||
		errors.As(err, &v.Shape)
	b, err := json.Marshal(v)
	if err != nil { // names that are no UTF-8 are written in another way, nothing fails
		return []byte(`{"Text":"the arrays do not fit together"}`)
	}
	return b
}

func decodeVerdict(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	var v verdict
	if err := json.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("coordinated: the outcome of the comparison of arrays: %w", err)
	}
	err := errors.New(v.Text)
	switch {
	case v.Not:
		return errNotDeclared
	case v.Hole != nil:
		err = v.Hole
	case v.Overlap != nil:
		err = v.Overlap
	case v.Differs != nil:
		err = v.Differs
	case v.Shape != nil:
		err = v.Shape
	}
	return fmt.Errorf("coordinated: %w", err)
}
