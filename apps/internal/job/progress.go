package job

import (
	"fmt"
	"io"
	"time"
)

// A Progress prints how far a run is, a line now and then, and times its steps. One rank should have
// one; its method does nothing on nil. It is not safe for concurrent use.
type Progress struct {
	w     io.Writer
	name  string
	total int
	every time.Duration // at most one line in this time; 0: none at all
	now   func() time.Time
	times *Times

	start     time.Time
	startStep int
	last      time.Time
}

// Step reports that step done of the total is complete. The first call marks where this start
// began, which is not 0 after a restart. The last step always gets a line.
func (p *Progress) Step(done int) {
	if p == nil {
		return
	}
	now := p.now()
	if p.start.IsZero() {
		p.start, p.startStep, p.last = now, done, now
	}
	p.times.First, p.times.Last, p.times.Loop = p.startStep, done, now.Sub(p.start).Seconds()
	if p.every > 0 && (now.Sub(p.last) >= p.every || done >= p.total) {
		p.last = now
		fmt.Fprintf(p.w, "%s: step %d of %d\n", p.name, done, p.total)
	}
}
