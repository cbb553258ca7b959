package outside

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/internal/handshake"
	"github.com/holdfast-hpc/holdfast/internal/job"
)

// served returns the plane of a job of one rank.
func served(t *testing.T) (*control.Plane, control.Key) {
	t.Helper()
	key := handshake.NewKey()
	p, err := control.Listen(control.Options{Size: 1, Key: key, Interface: "127.0.0.1",
		Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = p.Start(t.Context(), []string{p.Addr()}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, key
}

// TestServe: a client asks, gets the reason of a request that failed, and finds no server when the
// job is over; a second run in the directory is refused for as long.
func TestServe(t *testing.T) {
	p, key := served(t)
	dir := t.TempDir()
	var background sync.WaitGroup
	full := errors.New("disk full")
	s, err := Serve(t.Context(), ServerOptions{Plane: p, Dir: dir, Job: "j", Node: "n0", Key: key,
		Log: slog.New(slog.DiscardHandler), Go: background.Go,
		Request: func(stop, wait bool) error {
			if stop && wait {
				return full
			}
			return nil
		},
		Status: func() (*job.Status, error) { return &job.Status{Job: "j"}, nil },
		Ranks:  func() ([]job.RankStatus, error) { return []job.RankStatus{{State: "running"}}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := job.DialJob(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := cl.Status(t.Context()); err != nil || st.Job != "j" || len(st.States) != 1 {
		t.Errorf("status: got %+v, %v", st, err)
	}
	if st, err := cl.Request(t.Context(), false, true); err != nil || st.Job != "j" || st.States != nil {
		t.Errorf("a request: got %+v, %v", st, err)
	}
	if _, err := cl.Request(t.Context(), true, true); err == nil || err.Error() != full.Error() {
		t.Errorf("a request in vain: got %v", err)
	}
	want := fmt.Sprintf("its rank 0 is process %d on node n0;", os.Getpid())
	if err := Answering(t.Context(), dir); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a second run: got %v, want %q", err, want)
	}
	cl.Close()
	s.Close()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	background.Wait()
	if err := RefuseSecond(t.Context(), dir, "", slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("after the job: got %v", err)
	}
	s = nil
	s.Close() // there is none
}

// TestServeWithoutDirectory: a contact file that cannot be written is an error only where the
// job cannot do without its directory.
func TestServeWithoutDirectory(t *testing.T) {
	p, key := served(t)
	var background sync.WaitGroup
	opt := ServerOptions{Plane: p, Dir: filepath.Join(t.TempDir(), "none"), Key: key,
		Log: slog.New(slog.DiscardHandler), Go: background.Go}
	if s, err := Serve(t.Context(), opt); err == nil || s != nil {
		t.Errorf("got %v, want an error", err)
	}
	opt.Optional = true
	if _, err := Serve(t.Context(), opt); err != nil {
		t.Errorf("got %v, want none", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	background.Wait()
}
