package coordinated

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// TestRequeueStopped: after a final checkpoint, and only then, the job is put back
// into the queue, once, unless somebody else sees to it.
func TestRequeueStopped(t *testing.T) {
	bin, calls := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	script := `#!/bin/sh
[ "$1" = show ] && exec echo "JobState=$STATE Restarts=0"
echo "$@" >> ` + calls
	if err := os.WriteFile(filepath.Join(bin, "scontrol"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		name, state string
		stop, watch bool
		want        string
	}{
		{"time limit", "TIMEOUT", true, false, "requeue 12\n"},
		{"cancelled", "CANCELLED", true, false, ""},
		{"not stopped", "RUNNING", false, false, ""},
		{"under holdfast run", "RUNNING", true, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("STATE", c.state)
			opt := testOptions(t)
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
			_ = os.Remove(calls)
		})
	}
}
