package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/test/testbuf"
	"github.com/spf13/cobra"
)

func TestProgress(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		want        string
	}{
		{2 << 30, 8 << 30, "25 %  2.0 GiB of 8.0 GiB, 1.0 GiB/s, 6.0 s to go"},
		{2 << 30, 1 << 30, "99 %  1.0 GiB of 1.0 GiB, 1.0 GiB/s, 0.0 s to go"}, // it was an estimate
		{0, 1 << 30, "0 %  0 B of 1.0 GiB, 0 B/s"},
		{400, 0, "400 B, 200 B/s"},
	} {
		if got := progress(c.done, c.total, 2*time.Second); got != c.want {
			t.Errorf("%d of %d: got %q, want %q", c.done, c.total, got, c.want)
		}
	}
}

// TestRedraw: a line that is redrawn from half a second on, fits a terminal, and goes at the end.
func TestRedraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testbuf.Buffer
		stop := Redraw(&out, func() string { return strings.Repeat("x ", 100) })
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		if out.String() != "" {
			t.Errorf("got %q after less than half a second", out.String())
		}
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		stop()
		stop()
		lines := strings.Split(out.String(), "\r\x1b[K")
		if len(lines) != 4 || lines[3] != "" || lines[1] != lines[2] || len(lines[1]) < 70 || len(lines[1]) > barWidth {
			t.Errorf("got %q, want a short line twice, and that it goes", lines)
		}
	})
}

// TestNoBar: what is no terminal gets none.
func TestNoBar(t *testing.T) {
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&out)
	stop := ShowBar(cmd, "x", 1, func() int64 { return 1 })
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
