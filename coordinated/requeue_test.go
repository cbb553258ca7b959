package coordinated

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/testbuf"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// TestRequeueStopped: after a final checkpoint, and only then, the job is put back
// into the queue, once, unless somebody else sees to it. Slurm's signals to the step may end a command.
func TestRequeueStopped(t *testing.T) {
	bin, calls := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	script := `#!/bin/sh
ended() {
	if [ -n "$KILLED" ] && ! [ -e "$KILLED.$1" ]; then
		: > "$KILLED.$1"
		kill -TERM $$
	fi
}
[ -n "$LATE" ] || ended "$1"
if [ "$1" = show ]; then
	echo "JobState=$STATE Restarts=$(cat ` + calls + ` 2>/dev/null | wc -l) StartTime=2026-11-23T17:36:54"
	echo "EndTime=2026-11-23T17:37:54 TimeLimit=00:01:00"
else
	echo "$@" >> ` + calls + `
fi
ended "$1"`
	if err := os.WriteFile(filepath.Join(bin, "scontrol"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		name, state string
		stop, watch bool
		killed      string // when a signal ends each command once: "", before or after it has asked
		want        string
	}{
		{"time limit", "COMPLETING", true, false, "", "requeue 12\n"},
		{"a signal ends each command once", "COMPLETING", true, false, "before", "requeue 12\n"},
		{"a signal ends each command once it has asked", "COMPLETING", true, false, "after", "requeue 12\n"},
		{"cancelled", "CANCELLED", true, false, "", ""},
		{"not stopped", "RUNNING", false, false, "", ""},
		{"under holdfast run", "RUNNING", true, true, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("STATE", c.state)
			if c.killed != "" {
				t.Setenv("KILLED", filepath.Join(t.TempDir(), "killed"))
			}
			if c.killed == "after" {
				t.Setenv("LATE", "1")
			}
			var log testbuf.Buffer
			opt := testOptions(t)
			opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
			opt.Requeue, opt.slurm = true, slurm.Job{ID: "12"}
			if c.watch {
				opt.Supervisor = "nobody"
			}
			err := mpitest.NewWorld(3, mpitest.Options{Seed: 5}).Run(func(world *mpiwrap.Comm) error {
				ck, _, err := openStep(t.Context(), world, opt)
				if err != nil {
					return err
				}
				ask := ck.Request
				if c.stop {
					ask = ck.RequestStop
				}
				if world.Rank() == 1 {
					err = ask(t.Context())
				}
				for err == nil && ck.Stats().Epochs == nil {
					if err = world.Barrier(); err == nil {
						err = ck.Point(t.Context())
					}
				}
				if err != nil && !errors.Is(err, ErrStop) {
					ck.Abort(err)
					return err
				}
				return ck.Close()
			})
			if err != nil {
				t.Fatal(err)
			}
			got, _ := os.ReadFile(calls) // none is nothing
			if string(got) != c.want {
				t.Errorf("got the commands %q, want %q", got, c.want)
			}
			if said := strings.Contains(log.String(), "the job is requeued"); said != (c.want != "") {
				t.Errorf("want a requeue announced: %t; the log:\n%s", c.want != "", log.String())
			}
			_ = os.Remove(calls)
		})
	}
}
