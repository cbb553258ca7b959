package jobs

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/test/schema"
)

// TestDirectoryOfTheJob: the directory need not be named where the environment says it.
func TestDirectoryOfTheJob(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(t.TempDir())
	t.Setenv("HOLDFAST_GLOBAL", dir)
	for _, verb := range []string{"status", "request"} {
		code, _, errs := run(t, verb, "--timeout", "1ms")
		if code != cli.NoLook || !strings.Contains(errs, dir) {
			t.Errorf("%s: exit code %d, %q", verb, code, errs)
		}
	}
}

// TestRequestWaits: request waits for a job that has not begun, for as long as --timeout, and with --now not at all.
func TestRequestWaits(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"--now"}, {"--timeout", "200ms"}} {
		code, _, errs := run(t, append([]string{"request", dir}, args...)...)
		waited := strings.Contains(errs, "holdfast: waiting for a job in "+dir)
		if code != cli.NoLook || !strings.Contains(errs, "no running job answers") || waited != (len(args) > 1) {
			t.Errorf("%v: exit code %d, %q", args, code, errs)
		}
	}
	if code, _, errs := run(t, "request", dir+"/none"); code != cli.NoLook ||
		!strings.Contains(errs, "there is no such directory; give") {
		t.Errorf("a directory that is not there: exit code %d, %q", code, errs)
	}

	var notes heardText
	asked := make(chan int, 1)
	var answer bytes.Buffer
	ask := []string{"request", "--wait", "--json", dir}
	go func() { asked <- Run(t.Context(), ask, &answer, &notes) }()
	notes.await(t, "waiting for a job in "+dir, 1)
	ck := watchedJob(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	passed := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := ck.Point(t.Context()); err != nil {
				passed <- err
				return
			}
			time.Sleep(time.Millisecond) // the program's work
		}
		passed <- nil
	}()
	if code := <-asked; code != cli.Good || len(ck.Stats().Epochs) != 1 {
		t.Errorf("exit code %d, %q, epochs %v", code, notes.String(), ck.Stats().Epochs)
	}
	schema.Output(t, ask, answer.String())
	if code, out, _ := run(t, "status", "--json", dir); code != cli.Good || !strings.Contains(out, `"rank_states":[{`) {
		t.Errorf("status: exit code %d, %q", code, out)
	}
	cancel()
	if err := errors.Join(<-passed, ck.Close()); err != nil && !errors.Is(err, coordinated.ErrStop) {
		t.Error(err)
	}
}
