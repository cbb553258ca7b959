package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// isTerminal reports whether w is a terminal, which people watch and can be
// redrawn.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// tally counts what goes through a file system.
type tally struct{ read, written, removed atomic.Int64 }

// countingFS is the operating system's file system, counted.
type countingFS struct {
	vfs.FS
	t *tally
}

func (t *tally) fs() vfs.FS { return countingFS{osFS(), t} }

func (c countingFS) Open(name string) (vfs.File, error) { return c.file(c.FS.Open(name)) }

func (c countingFS) Create(name string, direct bool) (vfs.File, error) {
	return c.file(c.FS.Create(name, direct))
}

func (c countingFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return countingFile{f, c.t}, nil
}

func (c countingFS) Remove(name string) error {
	err := c.FS.Remove(name)
	if err == nil {
		c.t.removed.Add(1)
	}
	return err
}

type countingFile struct {
	vfs.File
	t *tally
}

func (f countingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.t.read.Add(int64(n))
	return n, err
}

func (f countingFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	f.t.written.Add(int64(n))
	return n, err
}

// bar shows on a terminal how far something is: a line that is redrawn five times
// a second, from the second half second on, and goes at the end.
type bar struct {
	w     io.Writer
	line  func(since time.Duration) string
	begun time.Time
	wide  int // of what was drawn last
}

const (
	barAfter = 500 * time.Millisecond
	barEvery = 200 * time.Millisecond
	barWidth = 20
)

// showBar draws a bar until stop is called; on anything but a terminal it does
// nothing.
func showBar(cmd *cobra.Command, what string, total int64, done func() int64, text func(int64) string) (stop func()) {
	if !isTerminal(cmd.ErrOrStderr()) {
		return func() {}
	}
	c := &counter{what: what, total: total, done: done, text: text}
	b := &bar{w: cmd.ErrOrStderr(), line: c.line}
	return b.show()
}

// show draws the bar until stop is called.
func (b *bar) show() (stop func()) {
	b.begun = time.Now()
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { b.run(quit) })
	return sync.OnceFunc(func() { close(quit); wg.Wait() })
}

// steps shows on a terminal which step of about total is under way; 0 when nobody
// knows how many there are. On anything but a terminal it does nothing.
func steps(cmd *cobra.Command, what string) (begin func(step string, total int), stop func()) {
	if !isTerminal(cmd.ErrOrStderr()) {
		return func(string, int) {}, func() {}
	}
	s := &stepper{what: what}
	b := &bar{w: cmd.ErrOrStderr(), line: s.line}
	return s.begin, b.show()
}

// stepper counts steps that begin one after the other.
type stepper struct {
	what string

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

func (s *stepper) line(since time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := ageText(since.Seconds())
	if s.total <= 0 {
		return fmt.Sprintf("%s for %s: %s", s.what, took, s.step)
	}
	share := min(1, float64(max(s.begun-1, 0))/float64(s.total))
	return fmt.Sprintf("%s %s  %s%s: %s", s.what, gauge(share), took, toGo(share, since), s.step)
}

func (b *bar) run(quit <-chan struct{}) {
	timer := time.NewTimer(barAfter)
	defer timer.Stop()
	for {
		select {
		case <-quit:
			if b.wide > 0 {
				fmt.Fprintf(b.w, "\r%*s\r", b.wide, "")
			}
			return
		case <-timer.C:
			b.draw(time.Now())
			timer.Reset(barEvery)
		}
	}
}

func (b *bar) draw(now time.Time) {
	runes := []rune(b.line(now.Sub(b.begun)))
	runes = runes[:min(len(runes), columns(b.w)-1)] // a line that is broken cannot be drawn over
	fmt.Fprintf(b.w, "\r%-*s", b.wide, string(runes))
	b.wide = len(runes)
}

// columns is how wide a terminal is.
func columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return 80
}

// counter watches a count grow.
type counter struct {
	what  string
	total int64 // about; 0 when nobody knows
	done  func() int64
	text  func(int64) string // for a number of what is counted
}

// line says how far it is, at which rate, and how long it will take.
func (c *counter) line(since time.Duration) string {
	n := c.done()
	rate := float64(n) / since.Seconds()
	if c.total <= 0 {
		return fmt.Sprintf("%s %s, %s/s", c.what, c.text(n), c.text(int64(rate)))
	}
	share := min(1, float64(n)/float64(c.total))
	return fmt.Sprintf("%s %s  %s of %s, %s/s%s", c.what, gauge(share), c.text(min(n, c.total)), c.text(c.total),
		c.text(int64(rate)), toGo(share, since))
}

// gauge draws a share of a whole.
func gauge(share float64) string {
	full := int(share * barWidth)
	return fmt.Sprintf("[%s%s] %3.0f %%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*share)
}

// toGo says how long the rest will take at the rate so far.
func toGo(share float64, since time.Duration) string {
	if share <= 0 || share >= 1 {
		return ""
	}
	return ", " + ageText(since.Seconds()*(1-share)/share) + " to go"
}
