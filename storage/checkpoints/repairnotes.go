package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/catalog"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// notes repairs what lies beside the epochs, after these: what stood in the place of an epoch may have been set aside.
func (r *repairer) notes(ctx context.Context) (out []Repaired, err error) {
	before := r.v.VerifyDirs()
	if len(before) == 0 {
		return nil, ctx.Err()
	}
	tried := map[place]error{}
	for i := range before {
		tried[placeOfFinding(&before[i])] = r.note(&before[i])
	}
	var dirs []string
	for _, d := range r.v.dirs {
		dirs = append(dirs, d.Path())
	}
	left := map[place]bool{}
	after := &View{}
	if len(dirs) > 0 && !r.dry {
		if after, err = Inspect(ctx, dirs...); err != nil {
			return nil, err
		}
	}
	for _, f := range after.VerifyDirs() {
		left[placeOfFinding(&f)] = true
	}
	for _, f := range before {
		p := placeOfFinding(&f)
		x := Repaired{Finding: f, Err: tried[p]}
		switch {
		case r.dry:
		case r.v.dir(f.Dir.Dir) != nil && !left[p]:
			x.Done, x.Err = true, nil
		case x.Err == nil:
			x.Err = errStillBad
		}
		out = append(out, x)
	}
	return out, ctx.Err()
}

// note repairs one of them.
func (r *repairer) note(f *Finding) error {
	d := r.v.dir(f.Dir.Dir)
	_, isEpoch := format.ParseEpochName(f.Part)
	kept, isKept := format.ParseKeptName(f.Part)
	var b []byte
	switch {
	case f.Kind == Newer:
		return f.Err
	case d == nil:
		return fmt.Errorf("nothing says what belongs into this directory, or it is refused: %w; make it yours, or "+
			"start the job, which restores it from the others", f.Err)
	case isEpoch:
		return fmt.Errorf("%w; remove it if nobody needs it", f.Err)
	case f.Part == format.MarkerName:
		b = (&format.Marker{Job: d.info.Job, Size: d.info.Size, Level: d.Name(), Run: d.info.Run}).Encode()
	case f.Part == format.BegunName:
		b = r.begun().Encode()
	case isKept: // its name is lost; that it stays is what matters
		b = (&format.Kept{Epoch: kept, Time: time.Now().UnixNano()}).Encode()
	case format.IsLedger(f.Part), strings.HasPrefix(f.Part, format.AttemptsPrefix): // the job writes it again
	default:
		return f.Err
	}
	if r.dry {
		return nil
	}
	return d.ReplaceNote(f.Part, b)
}

// begun is the newest that the directories say of the job's past, by their notes or by what is committed there.
func (r *repairer) begun() *format.Begun {
	best := &format.Begun{}
	for _, d := range r.v.dirs {
		if b, err := d.ReadBegun(); err == nil && b.Epoch >= best.Epoch {
			best = b
		}
	}
	for _, d := range r.v.dirs {
		if e, err := catalog.NewestReadable(d); err == nil && e > best.Epoch {
			best = &format.Begun{Epoch: e, Level: d.Name(), Run: d.info.Run}
		}
	}
	return best
}

// SetAside lists what repairs have set aside in directories because something else belongs in its place, and have not
// removed: directories that are not empty, or were refused.
func SetAside(ctx context.Context, dirs ...string) (out []string, err error) {
	for _, path := range distinct(dirs) {
		if perr := level.CheckPath(path); perr != nil {
			err = errors.Join(err, perr)
			continue
		}
		list, lerr := level.Aside(levelOf(ctx, path, nil))
		out, err = append(out, list...), errors.Join(err, lerr)
	}
	return out, err
}
