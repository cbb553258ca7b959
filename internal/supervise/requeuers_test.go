package supervise

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/job"
)

// TestRequeuer: a requeuer whose holdfast run is frozen puts the job back into the queue,
// one whose holdfast run has ended on a node that lives does not.
func TestRequeuer(t *testing.T) {
	for _, frozen := range []bool{true, false} {
		requeues := filepath.Join(t.TempDir(), "requeues")
		commands(t, map[string]string{"sinfo": `echo "n1|allocated|none"`, "squeue": "", "srun": "exit 1",
			"scontrol": `case "$1" in requeue) echo >> ` + requeues + `;; *) echo JobState=RUNNING Restarts=0;; esac`})
		sup, err := job.Supervise("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		value := sup.Var(false, false)[len(config.SupervisorVar)+1:]
		patience := time.Minute
		if frozen {
			patience = time.Nanosecond // too short for any answer
		}
		o := &job.Inquiry{Supervisor: value, Job: "5", Patience: patience}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- requeueAfterDeath(ctx, o, "n1", 100*time.Millisecond, t.Logf) }()
		c, err := sup.AcceptCaller(ctx, job.CallerGuard)
		if err != nil {
			t.Fatal(err)
		}
		if !frozen {
			if err := sup.Close(); err != nil {
				t.Fatal(err)
			}
			commands(t, map[string]string{"scontrol": `[ "$1" = requeue ] && echo >> ` + requeues +
				` || echo JobState=COMPLETED Restarts=0`})
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = c.Close()
		b, _ := os.ReadFile(requeues) // none is nothing
		if got := string(b) != ""; got != frozen {
			t.Errorf("frozen: %t: it was requeued: %t", frozen, got)
		}
		cancel()
		_ = sup.Close()
	}
}
