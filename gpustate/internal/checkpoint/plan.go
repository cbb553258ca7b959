package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// plan makes recorded objects on a device and gives them their bytes: those of a
// checkpoint for a restore, those of the device that the program leaves for a
// migration. The order of its steps is that of carryOut.
type plan struct {
	op     string // "restore" or "migrate", for messages
	d      *State
	s      *Session // session that gets the objects
	rec    *record.Record
	to     map[uint64]*object.Entry // the replacement of each object, by recorded ID
	fresh  []*object.Entry          // those of them that have no place in the device, in order
	others []variableOf             // of new programs, that the record does not have
	watch  *Stopwatch

	// bytes are the jobs that bring content i of the record, object o, into e.
	bytes func(i int, o *record.Object, e *object.Entry) []job
}

func (p *plan) fail(o *record.Object, err error) error {
	name := cmp.Or(o.Name, object.Unnamed(o))
	from := p.rec.Device
	return &object.Error{Op: p.op, Kind: o.Kind(), Name: name, Device: p.s.Info(), From: &from, Err: err}
}

// carryOut makes the objects that have no handle yet and brings the bytes: those of an object while the next ones are
// made. Programs are built meanwhile.
func (p *plan) carryOut(ctx context.Context) error {
	var builds sync.WaitGroup
	failed := make([]error, len(p.rec.Objects))
	defer builds.Wait()
	err := p.s.runAs(ctx, func(add func(jobs ...job)) error {
		contents := 0
		for i := range p.rec.Objects {
			o := &p.rec.Objects[i]
			e := p.to[o.ID]
			switch {
			case e == nil || e.Handle != nil || object.IsVariable(o) || o.Kernel != nil:
			case o.Program != nil:
				builds.Go(func() { failed[i] = p.create(o, e) })
			default:
				if err := p.create(o, e); err != nil {
					return err
				}
			}
			if !o.Mem.HasContents() {
				continue
			}
			if e != nil && !object.IsVariable(o) { // nil: it need not be kept
				add(p.bytes(contents, o, e)...)
			}
			contents++
		}
		p.watch.Step(&p.watch.Report.Create)
		return nil
	})
	p.watch.Step(&p.watch.Report.Stream)
	builds.Wait()
	p.watch.Step(&p.watch.Report.Build)
	if err := errors.Join(append(failed, err)...); err != nil {
		return err
	}
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		if e := p.to[o.ID]; o.Program != nil && e.Record.ID == 0 {
			if err := p.matchVariables(o, e); err != nil {
				return err
			}
		}
	}
	if err := p.s.run(ctx, p.variables()); err != nil {
		return err
	}
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		if e := p.to[o.ID]; o.Kernel != nil && e.Handle == nil {
			if err := p.create(o, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// create makes the object behind an entry.
func (p *plan) create(o *record.Object, e *object.Entry) error {
	var parent driver.Handle
	if made := p.to[o.Parent()]; made != nil {
		parent = made.Handle
	}
	do := func() (err error) {
		if e.Handle, err = e.Realize(p.s.Device, parent); err != nil {
			err = p.fail(o, err)
		}
		return err
	}
	if p.s == p.d.Session && o.Program == nil {
		return p.d.WithRoom(do)
	}
	return do()
}

// variables returns the jobs that bring the contents of variables.
func (p *plan) variables() (jobs []job) {
	for i, o := range p.rec.Contents() {
		if e := p.to[o.ID]; e != nil && object.IsVariable(o) { // nil: it need not be kept
			jobs = append(jobs, p.bytes(i, o, e)...)
		}
	}
	return jobs
}

// setArgs gives a kernel its recorded arguments.
func (p *plan) setArgs(r *record.Kernel, h driver.Handle) ([]object.Argument, error) {
	args := make([]object.Argument, len(r.Args))
	for i, ra := range r.Args {
		a := object.Argument{Kind: ra.Kind, Local: int(ra.Local), Value: ra.Value}
		if ra.Kind == driver.ArgMem || ra.Kind == driver.ArgSampler {
			if ra.Object == 0 { // it was released before the capture: launching fails as before
				continue
			}
			a.Object = p.to[ra.Object]
			a.Object.Argument.Store(true)
		}
		args[i] = a
		if a.Kind == driver.ArgNone {
			continue
		}
		if err := p.s.SetArg(h, i, a.Driver()); err != nil {
			return nil, fmt.Errorf("argument %d: %w", i, err)
		}
	}
	return args, nil
}

// matchVariables finds the recorded variables among those of a program that was
// just built. Others of the program are added too: the next capture needs them.
func (p *plan) matchVariables(o *record.Object, program *object.Entry) error {
	list, err := program.FindVariables(p.s.Device, program.Handle)
	if err != nil {
		return p.fail(o, err)
	}
	found := map[string]*object.Entry{}
	for _, v := range list {
		found[v.Record.Name] = v
	}
	for i := range p.rec.Objects {
		r := &p.rec.Objects[i]
		if !object.IsVariable(r) || r.Mem.Parent != o.ID || p.to[r.ID] == nil {
			continue
		}
		v := found[r.Name]
		if v == nil { // one that kernels do not write
			if v, err = p.s.FindVariable(program, program.Handle, r.Name); err != nil {
				err = p.fail(r, err)
				break
			}
		}
		switch {
		case v == nil:
			err = p.fail(r, errNoVariable)
		case v.Record.Mem.Bytes != r.Mem.Bytes:
			err = p.fail(r, object.OtherSize(v.Record.Mem.Bytes, r.Mem.Bytes))
		default:
			p.to[r.ID].Handle, p.to[r.ID].Initial = v.Handle, v.Initial
			delete(found, r.Name)
		}
		if err != nil {
			break
		}
	}
	for _, v := range list { // in their order
		if found[v.Record.Name] == v {
			p.fresh = append(p.fresh, v)
			p.others = append(p.others, variableOf{program, v})
		}
	}
	return err
}

// errNoVariable is a variable that the record has and the program has not.
var errNoVariable = fmt.Errorf("the program has no such variable: %w", object.ErrConflict)

// variableOf is a variable and its program.
type variableOf struct{ program, variable *object.Entry }

// moved is o as it will be elsewhere: IDs are not known before the objects have
// their places.
func moved(o *record.Object) record.Object {
	n := *o
	n.ID, n.Released = 0, false
	if o.Mem != nil {
		m := *o.Mem
		n.Mem = &m
	}
	if o.Kernel != nil {
		n.Kernel = &record.Kernel{Function: o.Kernel.Function}
	}
	return n
}

// undo releases the objects of carryOut.
func (p *plan) undo() error {
	var errs []error
	for i := len(p.fresh) - 1; i >= 0; i-- {
		e := p.fresh[i]
		if e.Released.Load() {
			continue // it went with the last that was made from it
		}
		if e.Record.ID != 0 { // it has its place already: take it out like the program would
			p.d.Unlist(e)
			errs = append(errs, p.d.Forget(e, func(e *object.Entry) error { return e.Discard(p.s, e.Handle) }))
		} else {
			errs = append(errs, e.Discard(p.s, e.Handle))
		}
		errs = append(errs, e.Unmap())
	}
	return errors.Join(errs...)
}

// Stopwatch takes the times of a migration.
type Stopwatch struct {
	Begin, Last time.Time
	Report      Migration
}

// Step ends a step.
func (w *Stopwatch) Step(step *time.Duration) {
	now := time.Now()
	*step = now.Sub(w.Last)
	w.Last = now
}

// Migration reports the duration of a migration, step by step. The times add up to
// Total.
type Migration struct {
	From, To string // name of the device
	Bytes    int64  // size of the contents that moved

	// FromSource lists the programs whose binary form the new device did not load.
	FromSource []SourceBuild `json:",omitempty"`

	Choose  time.Duration // find and open the new device; the program runs
	Drain   time.Duration // wait for the calls in progress and for all commands
	Create  time.Duration // make the objects there; contents of those that are made begin to move
	Stream  time.Duration // move the rest of the contents; programs are built meanwhile
	Build   time.Duration // wait for the programs beyond that
	Remap   time.Duration // make the kernels and set their arguments
	Release time.Duration // switch over and release the old objects
	Total   time.Duration // all steps
}

// SourceBuild is a program that a device runs from its source, because it did not load
// the binary form that goes before: PTX, a cubin, a fatbin or SPIR-V of Sources. The source
// may compute in another order, and takes a compiler and time at each start.
type SourceBuild struct {
	Program string   // its name, or "#n" for program n without one
	Kernels []string // functions of the kernels that live, sorted
	Why     string   // the message of the device or its driver about the binary form
}
