package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// IsTerminal reports whether w is a terminal, which people watch and can be
// redrawn.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

const (
	barAfter = 500 * time.Millisecond
	barEvery = 200 * time.Millisecond
	barWidth = 22
)

// ShowBar draws how much of about total is done until stop is called; total 0 means
// that nobody knows how much there is. On anything but a terminal it does nothing.
func ShowBar(cmd *cobra.Command, what string, total int64, done func() int64, unit Unit) (stop func()) {
	w := cmd.ErrOrStderr()
	if !IsTerminal(w) {
		return func() {}
	}
	return countBar(w, what, total, unit).show(func() (int64, int64) { return done(), total })
}

// Unit is what a bar counts: a unit and formats of package decor.
type Unit struct {
	unit               any
	count, pair, speed string
}

// InBytes and InFiles are what bars count.
var (
	InBytes = Unit{decor.SizeB1024(0), "% .1f", "% .1f of % .1f", "% .1f"}
	InFiles = Unit{0, "%d files", "%d of %d files", "%.0f/s"}
)

func countBar(w io.Writer, what string, total int64, in Unit) *bar {
	speed := decor.AverageSpeed(in.unit, ", "+in.speed)
	if total <= 0 {
		return newBar(w, what, total, decor.Current(in.unit, in.count), speed)
	}
	return newBar(w, what, total, decor.Counters(in.unit, in.pair), speed, toGo(time.Now()))
}

// toGo says how long the rest takes at the rate since begun. The library's own counts
// in whole nanoseconds for a byte.
func toGo(begun time.Time) decor.Decorator {
	return decor.Any(func(s decor.Statistics) string {
		if s.Current <= 0 || s.Total <= 0 {
			return ""
		}
		left := time.Since(begun).Seconds() * float64(s.Total-s.Current) / float64(s.Current)
		return ", " + AgeText(left) + " to go"
	})
}

// bar is one line on a terminal, redrawn from the second half second on, that goes
// at the end.
type bar struct {
	all *mpb.Progress
	one *mpb.Bar
}

// newBar makes a bar: what is done, how much of it when the total is known, and a text.
func newBar(w io.Writer, what string, total int64, text ...decor.Decorator) *bar {
	late := make(chan struct{})
	time.AfterFunc(barAfter, func() { close(late) })
	all := mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithRefreshRate(barEvery), mpb.WithRenderDelay(late))
	known := func(s decor.Statistics) bool { return s.Total > 0 }
	style := mpb.BarStyle().Lbound("[").Filler("#").Tip("").Padding(".").Rbound("] ")
	gauge := mpb.BarFillerMiddleware(func(f mpb.BarFiller) mpb.BarFiller {
		return mpb.BarFillerFunc(func(w io.Writer, s decor.Statistics) error {
			if !known(s) {
				return nil
			}
			return f.Fill(w, s)
		})
	})
	share := decor.Any(func(s decor.Statistics) string {
		if !known(s) {
			return ""
		}
		return fmt.Sprintf("%.0f %%  ", 100*float64(s.Current)/float64(s.Total))
	})
	text = append([]decor.Decorator{share}, text...)
	return &bar{all, all.New(total, style, gauge, mpb.BarWidth(barWidth), mpb.BarFillerTrim(),
		mpb.PrependDecorators(decor.Name(what+" ")), mpb.AppendDecorators(text...))}
}

// set moves the bar, but never to its end: its total is an estimate.
func (b *bar) set(done, total int64) {
	if total > 0 {
		b.one.SetTotal(total, false)
		done = min(done, total-1)
	}
	b.one.SetCurrent(done)
}

// show draws the bar, with what look says is done of what total, until stop is
// called.
func (b *bar) show(look func() (done, total int64)) (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(barEvery)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				b.set(look())
			}
		}
	})
	return sync.OnceFunc(func() {
		close(quit)
		wg.Wait()
		b.one.Abort(true)
		b.all.Wait()
	})
}

// Steps shows on a terminal which step of about total is under way; 0 when nobody
// knows how many there are. On anything but a terminal it does nothing.
func Steps(cmd *cobra.Command, what string) (begin func(step string, total int), stop func()) {
	w := cmd.ErrOrStderr()
	if !IsTerminal(w) {
		return func(string, int) {}, func() {}
	}
	s := &stepper{}
	return s.begin, stepBar(w, what, s).show(s.count)
}

func stepBar(w io.Writer, what string, s *stepper) *bar {
	name := decor.Any(func(decor.Statistics) string { return ": " + s.name() })
	return newBar(w, what, 0, decor.Elapsed(decor.ET_STYLE_GO), toGo(time.Now()), name)
}

// stepper counts steps that begin one after the other.
type stepper struct {
	mu    sync.Mutex
	step  string // guarded by mu
	total int    // guarded by mu
	begun int    // guarded by mu
}

func (s *stepper) begin(step string, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step, s.total = step, total
	s.begun++
}

func (s *stepper) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.step
}

func (s *stepper) count() (done, total int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(max(s.begun-1, 0)), int64(s.total)
}

// AgeText writes a duration for people who watch.
func AgeText(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 120:
		return fmt.Sprintf("%.0f s", s)
	case s < 7200:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}
