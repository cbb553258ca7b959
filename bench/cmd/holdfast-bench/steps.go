package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/spf13/cobra"
)

// showSteps shows on a terminal which step of about total is under way; 0 means that the
// number is unknown. On anything but a terminal it does nothing.
func showSteps(cmd *cobra.Command, what string) (begin func(step string, total int), stop func()) {
	w := cmd.ErrOrStderr()
	if !cli.IsTerminal(w) {
		return func(string, int) {}, func() {}
	}
	s := &stepper{begun: time.Now()}
	return s.begin, cli.Redraw(w, func() string { return what + " " + s.text(time.Now()) })
}

// stepper counts steps that begin one after the other.
type stepper struct {
	begun time.Time
	mu    sync.Mutex // guards the fields below
	step  string
	total int
	done  int
}

func (s *stepper) begin(step string, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.step != "" {
		s.done++
	}
	s.step, s.total = step, total
}

func (s *stepper) text(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := now.Sub(s.begun)
	text := took.Round(time.Second).String()
	if s.total > 0 {
		text = fmt.Sprintf("%d of %d, %s%s", s.done, s.total, text, cli.ToGo(int64(s.done), int64(s.total), took))
	}
	return text + ": " + s.step
}
