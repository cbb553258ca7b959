package jobs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// heardText is what a watcher has written so far.
type heardText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *heardText) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Write(b)
}

func (h *heardText) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

// await waits until the watcher has written text n times.
func (h *heardText) await(t *testing.T, text string, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); strings.Count(h.String(), text) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q (%d times) in %q", text, n, h.String())
		}
	}
}

// watchedJob opens the checkpointer of a job of one rank in dir.
func watchedJob(t *testing.T, dir string) *coordinated.Checkpointer {
	t.Helper()
	world := mpiwrap.Single()
	ck, err := coordinated.Open(t.Context(), world, coordinated.Options{Job: "watched", Global: dir, Events: "off",
		CheckpointSignals: []os.Signal{}, StopSignals: []os.Signal{},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	step := 0
	if err := ck.Protect("step", &step); err != nil {
		t.Fatal(err)
	}
	if _, err := ck.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ck
}

// TestWatch: the watch begins before the job, continues with the run after a death, and ends
// with the job. A death that nothing follows is an error.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	contact := filepath.Join(dir, "holdfast.control")
	o := statusOptions{watch: true, every: 10 * time.Millisecond, timeout: time.Minute}
	var out, notes heardText
	ended := make(chan error, 1)
	go func() { ended <- o.follow(t.Context(), &out, &notes, dir) }()
	notes.await(t, "waiting for a job", 1)
	const answer = "job watched: 1 ranks"
	ck := watchedJob(t, dir)
	out.await(t, answer, 2)

	file, err := os.ReadFile(contact)
	if err != nil {
		t.Fatal(err)
	}
	if err := ck.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || !strings.Contains(notes.String(), "the job has ended") {
		t.Errorf("after an ordered end: %v, %q", err, notes.String())
	}

	// A killed run leaves its contact file.
	if err := os.WriteFile(contact, file, 0o600); err != nil {
		t.Fatal(err)
	}
	hasty := statusOptions{watch: true, every: 10 * time.Millisecond, timeout: 500 * time.Millisecond}
	if _, err := hasty.next(t.Context(), dir); !errors.Is(err, errNoMore) {
		t.Errorf("a run that died: got %v, want errNoMore", err)
	}
	next := make(chan error, 1)
	go func() {
		c, err := o.next(t.Context(), dir)
		if err == nil && c == nil {
			err = errors.New("taken for an ordered end")
		} else if err == nil {
			err = c.Close()
		}
		next <- err
	}()
	again := watchedJob(t, dir)
	if err := <-next; err != nil {
		t.Errorf("the run after a death: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.follow(ctx, &out, &notes, dir); err != nil {
		t.Errorf("interrupted while it waits: %v", err)
	}
	if err := o.follow(t.Context(), &out, &notes, filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there: no error")
	}
}
