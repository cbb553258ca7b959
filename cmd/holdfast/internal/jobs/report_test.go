package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"golang.org/x/sys/unix"
)

// eventDir has the logs of two ranks that took a checkpoint.
func eventDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for rank := range 2 {
		dir := filepath.Join(dir, events.DirName)
		l, err := events.Create(t.Context(), events.Options{Dir: dir, Rank: rank, Begun: time.Now(),
			Header: events.Header{Job: "sun", Run: 1, Size: 2, Node: "n1", AliveNS: 5e9, Levels: []string{"local"}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{events.Open, events.Restore, events.Arm, events.Park, events.Drain,
			events.Capture, events.Resume, events.Write, events.Commit, events.Close} {
			e := events.Event{Name: name, Dur: 1000}
			switch name {
			case events.Open, events.Restore, events.Close:
			case events.Write, events.Commit:
				e.Level, e.Stored = "local", 70
				fallthrough
			default:
				e.Epoch, e.Bytes = 1, 100
			}
			l.Emit(e)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestReport writes a page and JSON of a directory of logs.
func TestReport(t *testing.T) {
	dir, to := eventDir(t), t.TempDir()
	html := filepath.Join(to, "r.html")
	var out, errs bytes.Buffer
	if code := Run(context.Background(), []string{"report", dir, "-o", html}, &out, &errs); code != cli.Good {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	page, err := os.ReadFile(html)
	if err != nil || !bytes.Contains(page, []byte(`data-epoch="1"`)) {
		t.Errorf("the page has no epoch 1: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(to, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	code, js, said := run(t, "report", dir, "--json")
	if code != cli.Good {
		t.Fatalf("exit %d: %s", code, said)
	}
	var got struct {
		Job    string
		Epochs []struct{ Bytes int64 }
	}
	if err := json.Unmarshal([]byte(js), &got); err != nil || got.Job != "sun" || len(got.Epochs) != 1 ||
		got.Epochs[0].Bytes != 200 {
		t.Errorf("got %+v, %v", got, err)
	}
	out.Reset()
	if code := Run(context.Background(), []string{"report", dir, "--starts", "1", "-o", "-"}, &out,
		&errs); code != cli.Good || !strings.Contains(out.String(), "</html>") {
		t.Errorf("the newest start to standard output: exit %d, %d bytes", code, out.Len())
	}
	errs.Reset()
	if code := Run(context.Background(), []string{"report", to}, &out, &errs); code != cli.NoLook ||
		!strings.Contains(errs.String(), "no event logs") {
		t.Errorf("no logs: exit %d, %q", code, errs.String())
	}
}

// TestReportToPipe: what is no regular file is written to, not replaced, and a
// directory is an error.
func TestReportToPipe(t *testing.T) {
	dir, pipe := eventDir(t), filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	read := make(chan []byte)
	go func() {
		b, _ := os.ReadFile(pipe)
		read <- b
	}()
	var out, errs bytes.Buffer
	if code := Run(context.Background(), []string{"report", dir, "-o", pipe}, &out, &errs); code != cli.Good {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	if info, err := os.Stat(pipe); err != nil || info.Mode().IsRegular() {
		t.Fatalf("the pipe is now %v, %v", info, err)
	}
	if page := <-read; !bytes.HasSuffix(bytes.TrimSpace(page), []byte("</html>")) {
		t.Errorf("through the pipe: %d bytes", len(page))
	}
	if code := Run(context.Background(), []string{"report", dir, "-o", filepath.Dir(pipe)}, &out,
		&errs); code != cli.NoLook {
		t.Errorf("to a directory: exit %d", code)
	}
}
