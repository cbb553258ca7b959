package bench

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestFigures: what Print writes is read again, in order, among the lines of a library.
func TestFigures(t *testing.T) {
	var out bytes.Buffer
	out.WriteString("[Info] a library\tis here\n")
	if err := errors.Join(Print(&out, "b", 1, 2.5), Print(&out, "a", 3), Print(&out, "b", 4)); err != nil {
		t.Fatal(err)
	}
	f, err := ReadFigures(out.String(), "a", "b")
	if err != nil || !slices.Equal(f.Set["b"], Samples{1, 2.5, 4}) || !slices.Equal(f.Names, []string{"b", "a"}) ||
		f.Texts["[Info] a library"] != "is here" {
		t.Errorf("got %+v, %v", f, err)
	}
	if _, err := ReadFigures(out.String(), "c"); err == nil || !strings.Contains(err.Error(), `nothing for "c"`) {
		t.Errorf("a missing figure: %v", err)
	}
}

// TestAnswer: a process carries out commands until there are no more, and an error is an answer.
func TestAnswer(t *testing.T) {
	inside, outside := io.Pipe()
	answers, replies := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Answer(inside, replies, func(n int, twice *int) error {
			if n < 0 {
				return errors.New("too small")
			}
			*twice = 2 * n
			return nil
		})
	}()
	p := newProcess(outside, answers)
	var got int
	if err := p.Do(21, &got); err != nil || got != 42 {
		t.Errorf("got %d, %v", got, err)
	}
	if err := p.Do(-1, &got); err == nil || err.Error() != "too small" {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(p.in.Close(), <-done); err != nil {
		t.Error(err)
	}
}

// TestServe: a server is there when it says so, is stopped, and reports the reason if it does not start.
func TestServe(t *testing.T) {
	ready := func(line string) bool { return line == "ready" }
	script := "echo hello; echo ready; echo oops >&2; exec sleep 600"
	s, err := Serve(exec.CommandContext(t.Context(), "sh", "-c", script), ready)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Stop(), s.Stop()); err != nil {
		t.Error(err)
	}
	if _, err := Serve(exec.Command("sh", "-c", "echo no room >&2; exit 3"), ready); err == nil ||
		!strings.Contains(err.Error(), "no room") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
	stays, err := Serve(exec.Command("sh", "-c", "echo ready; read end; exit 4"), ready)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stays.Input.Close(), stays.Wait()); err == nil || !strings.Contains(err.Error(), "status 4") {
		t.Errorf("got %v", err)
	}
}
