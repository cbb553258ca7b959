package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
)

// TestBar: a line that is redrawn with how far it is, and goes at the end.
func TestBar(t *testing.T) {
	for _, c := range []struct {
		total int64
		unit  Unit
		want  string
	}{
		{8 << 30, InBytes, `^verifying \[#+\.+\] 25 %  2\.0 GiB of 8\.0 GiB, .*B/s, .* s to go\n`},
		{1 << 30, InBytes, `^verifying \[#+\] 100 %  1024\.0 MiB of 1\.0 GiB, .*B/s, .* to go\n`}, // it was an estimate
		{0, InFiles, `^verifying 2147483648 files, [0-9]+/s\n`},
	} {
		var out watched
		b := countBar(&out, "verifying", c.total, c.unit)
		stop := b.show(func() (int64, int64) { return 2 << 30, c.total })
		b.set(2<<30, c.total)
		out.wait()
		stop()
		stop()
		if text := out.String(); !regexp.MustCompile(c.want).MatchString(text) || !strings.HasSuffix(text, "\x1b[J") {
			t.Errorf("total %d: got %q, want %q and that it goes", c.total, text, c.want)
		}
	}
}

// watched is a terminal of which a test waits for the first line.
type watched struct {
	mu    sync.Mutex
	out   bytes.Buffer
	first chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out.Len() == 0 && len(p) > 0 {
		close(w.line())
	}
	return w.out.Write(p)
}

// line is closed with the first line; mu is held.
func (w *watched) line() chan struct{} {
	if w.first == nil {
		w.first = make(chan struct{})
	}
	return w.first
}

func (w *watched) wait() {
	w.mu.Lock()
	first := w.line()
	w.mu.Unlock()
	<-first
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.String()
}

// TestSteps: of so many, or of nobody knows how many.
func TestSteps(t *testing.T) {
	s := stepper{}
	s.begin("one", 0)
	if done, total := s.count(); done != 0 || total != 0 || s.name() != "one" {
		t.Errorf("got %s, %d of %d", s.name(), done, total)
	}
	s.begin("two", 4)
	if done, total := s.count(); done != 1 || total != 4 || s.name() != "two" {
		t.Errorf("got %s, %d of %d, want two, 1 of 4", s.name(), done, total)
	}
}

// TestStepBar: how far it is and what is to go where that is known, the step alone where not.
func TestStepBar(t *testing.T) {
	for total, want := range map[int]string{0: `^measuring +[0-9]+s: two\n`,
		4: `^measuring \[#+\.+\] 25 %  [0-9]+s, .* s to go: two\n`} {
		s := &stepper{}
		s.begin("one", total)
		s.begin("two", total)
		var out watched
		b := stepBar(&out, "measuring", s)
		b.set(s.count())
		stop := b.show(s.count)
		out.wait()
		stop()
		if text := out.String(); !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("total %d: got %q, want %q", total, text, want)
		}
	}
}

// TestNoBar: what is no terminal gets none.
func TestNoBar(t *testing.T) {
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&out)
	stop := ShowBar(cmd, "x", 1, func() int64 { return 1 }, InBytes)
	stop()
	stop()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if out.Len() > 0 || IsTerminal(f) {
		t.Errorf("got %q; a file is a terminal: %v", out.String(), IsTerminal(f))
	}
}
