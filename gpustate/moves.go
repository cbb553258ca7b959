package gpustate

import (
	"context"
	"encoding/json"
	"time"
)

// Migration tells what a migration took, step by step. The times add up to Total.
type Migration struct {
	From, To string
	Bytes    int64 // of contents

	// FromSource lists the programs whose binary form the new device did not load.
	FromSource []SourceBuild `json:",omitempty"`

	Choose  time.Duration // find and open the new device; the program runs
	Drain   time.Duration // wait for the calls in progress and for all commands
	Create  time.Duration // make the objects there
	Stream  time.Duration // move the contents; programs are built meanwhile
	Build   time.Duration // wait for the programs beyond that
	Remap   time.Duration // make the kernels and set their arguments
	Release time.Duration // switch over and release the old objects
	Total   time.Duration
}

// watch takes the times of a migration.
type watch struct {
	begin, last time.Time
	m           Migration
}

func (w *watch) lap(step *time.Duration) {
	now := time.Now()
	*step = now.Sub(w.last)
	w.last = now
}

// inherit takes over from the device how servers are reached where s does not
// say it.
func (s *Select) inherit(d *Device) {
	was := d.opened.Load()
	if was == nil {
		return
	}
	if s.KeyFile == "" {
		s.KeyFile = was.KeyFile
	}
	if s.Silence == 0 {
		s.Silence = was.Silence
	}
	if s.Label == "" {
		s.Label = was.Label
	}
}

// moveAway moves the device because its server asks for it: for maintenance, or
// to balance the load.
func (d *Device) moveAway(ctx context.Context, to string, tell func(steps string, err error)) {
	d.mu.RLock()
	old, closed := d.drv, d.closed.Load()
	if !closed {
		old.keep() // the server wants to know how it went
	}
	d.mu.RUnlock()
	if closed {
		tell("", ErrClosed)
		return
	}
	sel, err := ParseSelect(to)
	var m Migration
	if err == nil {
		m, err = d.Migrate(ctx, sel)
	}
	steps, _ := json.Marshal(m)
	tell(string(steps), err)
	_ = old.drop() // a server that has gone meanwhile has released all
}
