package job

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Progress shows how far a run is: a bar that is redrawn on a terminal, or a line now and then.
// One rank should have one. It is not safe for concurrent use.
type Progress struct {
	w     io.Writer
	name  string
	total int
	bar   bool
	off   bool
	quiet bool          // the first and the last step are not worth a line
	every time.Duration // at most one report in this time
	now   func() time.Time
	times *Times // nil, or takes the time of the steps

	start     time.Time
	startStep int
	last      time.Time
	drawn     bool
}

// NewProgress returns a Progress of total steps on stderr. The mode is "bar",
// "lines", "off", or "auto", also if empty: a bar on a terminal and a line a minute
// otherwise. All methods do nothing on nil.
func NewProgress(name, mode string, total int) (*Progress, error) {
	p := &Progress{w: os.Stderr, name: name, total: total, every: 200 * time.Millisecond, now: time.Now}
	switch mode {
	case "auto", "":
		if p.bar = onTerminal(); !p.bar {
			p.every, p.quiet = time.Minute, true
		}
	case "bar":
		p.bar = true
	case "lines":
	case "off":
		p.off = true
	default:
		return nil, fmt.Errorf("progress %q: want auto, bar, lines or off", mode)
	}
	return p, nil
}

// onTerminal reports whether stderr is a terminal.
func onTerminal() bool {
	_, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS)
	return err == nil
}

// Step reports that step done of the total is complete. The first call marks where this start
// began, which is not 0 after a restart.
func (p *Progress) Step(done int) {
	if p == nil {
		return
	}
	now := p.now()
	first := p.start.IsZero()
	if first {
		p.start, p.startStep = now, done
	}
	if p.times != nil {
		p.times.First, p.times.Last, p.times.Loop = p.startStep, done, now.Sub(p.start).Seconds()
	}
	if first && p.quiet {
		p.last = now
	}
	due := now.Sub(p.last) >= p.every || (first || done >= p.total) && !p.quiet
	if p.off || !due {
		return
	}
	p.last = now
	p.report(done, now.Sub(p.start))
}

// report writes one line or redraws the bar.
func (p *Progress) report(done int, elapsed time.Duration) {
	if !p.bar {
		fmt.Fprintf(p.w, "%s: step %d of %d\n", p.name, done, p.total)
		return
	}
	const width = 30
	filled := width
	if p.total > 0 {
		filled = width * min(done, p.total) / p.total
	}
	fmt.Fprintf(p.w, "\r%s [%-*s] %d/%d %s\033[K", p.name, width, strings.Repeat("=", filled), done, p.total,
		p.eta(done, elapsed))
	p.drawn = true
}

// eta is the time that the remaining steps take at the rate since the start.
func (p *Progress) eta(done int, elapsed time.Duration) string {
	if done <= p.startStep || done >= p.total {
		return ""
	}
	rest := time.Duration(float64(elapsed) / float64(done-p.startStep) * float64(p.total-done))
	return "ETA " + rest.Round(time.Second).String()
}

// Done ends the line of a bar, so that the next output begins on a line of its own.
func (p *Progress) Done() {
	if p != nil && p.drawn {
		fmt.Fprintln(p.w)
		p.drawn = false
	}
}
