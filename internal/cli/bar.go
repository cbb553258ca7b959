package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/spf13/cobra"
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
	barWidth = 79 // bytes, so that a line does not wrap
)

// ShowBar writes how many of about total bytes are done until stop is called; total 0 means
// that the total is not known. On anything but a terminal it does nothing.
func ShowBar(cmd *cobra.Command, what string, total int64, done func() int64) (stop func()) {
	w, begun := cmd.ErrOrStderr(), time.Now()
	if !IsTerminal(w) {
		return func() {}
	}
	return Redraw(w, func() string { return what + " " + progress(done(), total, time.Since(begun)) })
}

// progress returns how far something is after a time: the share, the amounts, the rate and how long the rest takes.
func progress(done, total int64, took time.Duration) string {
	speed := units.Bytes(int64(float64(done)/max(took.Seconds(), 1e-3))) + "/s"
	if total <= 0 {
		return units.Bytes(done) + ", " + speed
	}
	done = min(done, total-1) // total is an estimate
	return fmt.Sprintf("%d %%  %s of %s, %s%s", 100*done/total, units.Bytes(done), units.Bytes(total), speed,
		ToGo(done, total, took))
}

// ToGo says how long the rest takes at the rate so far.
func ToGo(done, total int64, took time.Duration) string {
	if done <= 0 {
		return ""
	}
	return ", " + AgeText(took.Seconds()*float64(total-done)/float64(done)) + " to go"
}

// Redraw keeps a line of a terminal up to date, from half a second on, until stop is called, which clears it.
func Redraw(w io.Writer, line func() string) (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for after := barAfter; ; after = barEvery {
			select {
			case <-quit:
				fmt.Fprint(w, "\r\x1b[K")
				return
			case <-time.After(after):
			}
			fmt.Fprint(w, "\r\x1b[K"+units.Cut(line(), barWidth))
		}
	})
	return sync.OnceFunc(func() {
		close(quit)
		wg.Wait()
	})
}

// AgeText writes a duration for people.
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
