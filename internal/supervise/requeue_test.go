package supervise

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// requeued runs left with a scontrol of the given body, which finds how often it was
// asked to requeue in $n, and returns the log and what was requeued.
func requeued(t *testing.T, r *runner, body string) (log, calls string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "calls")
	commands(t, map[string]string{"scontrol": `calls=` + file + `
n=$(cat $calls 2>/dev/null | wc -l)
` + body})
	errs := &lockedBuffer{}
	r.job, r.flags.Requeue, r.stderr, r.computed = &slurm.Job{ID: "5"}, true, errs, true
	if code := r.left(t.Context(), ExitStopped); code != ExitStopped {
		t.Errorf("got code %d", code)
	}
	b, _ := os.ReadFile(file) // none is nothing
	return errs.String(), string(b)
}

const (
	running   = `[ "$1" = show ] && exec echo JobState=RUNNING Restarts=0` + "\n"
	noAnswer  = `echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1`
	takesItIn = `echo "$@" >> $calls`
)

// TestRequeueRetries: a controller that is away for a moment near the end does not cost
// the requeue, and one that refuses is not asked again.
func TestRequeueRetries(t *testing.T) {
	soon := time.Now().Add(time.Hour)
	log, calls := requeued(t, &runner{deadline: soon}, running+takesItIn+`; [ $n = 1 ] && exit 0; `+noAnswer)
	if calls != "requeue 5\nrequeue 5\n" || !strings.Contains(log, "trying again in 1s") ||
		!strings.Contains(log, "job 5 requeued") {
		t.Errorf("requeue without an answer: got the commands %q and\n%s", calls, log)
	}
	log, calls = requeued(t, &runner{deadline: soon}, `[ $n = 0 ] && { echo first >> $calls; `+noAnswer+`; }
`+running+takesItIn)
	if calls != "first\nrequeue 5\n" || !strings.Contains(log, "job 5 requeued") {
		t.Errorf("show without an answer: got the commands %q and\n%s", calls, log)
	}
	log, calls = requeued(t, &runner{deadline: soon}, running+takesItIn+
		`; echo "Requested operation is presently disabled for job 5" >&2; exit 1`)
	if calls != "requeue 5\n" || !strings.Contains(log, "--no-requeue") {
		t.Errorf("refused: got the commands %q and\n%s", calls, log)
	}
	log, calls = requeued(t, &runner{deadline: time.Now().Add(-time.Minute)}, noAnswer)
	if calls != "" || !strings.Contains(log, "its time is over: submit the script again") {
		t.Errorf("no time: got the commands %q and\n%s", calls, log)
	}
}

// TestRequeueUnsure: where Slurm does not tell what became of a job that was sent TERM,
// it may have been cancelled, and a cancelled job does not come back.
func TestRequeueUnsure(t *testing.T) {
	odd := `[ "$1" = show ] && exec echo JobState=RUNNING Restarts=many` + "\n" + takesItIn
	for _, told := range []bool{true, false} {
		log, calls := requeued(t, &runner{told: told}, odd)
		if want := map[bool]string{true: "", false: "requeue 5\n"}[told]; calls != want {
			t.Errorf("sent TERM: %t: got the commands %q, want %q\n%s", told, calls, want, log)
		}
	}
	if _, calls := requeued(t, &runner{},
		fmt.Sprintf("%s\n%s", `[ "$1" = show ] && exec echo JobState=CANCELLED Restarts=0`, takesItIn)); calls != "" {
		t.Errorf("cancelled: got the commands %q", calls)
	}
}

// TestForgotten: a job that Slurm does not know any more is over: nothing is started for it.
func TestForgotten(t *testing.T) {
	commands(t, map[string]string{"scontrol": `echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1`})
	errs := &lockedBuffer{}
	r := &runner{job: &slurm.Job{ID: "5"}, stderr: errs}
	if r.ours(t.Context()) {
		t.Errorf("it goes on\n%s", errs)
	}
	for _, c := range []struct {
		guards *guards
		ago    time.Duration
		want   bool
	}{{&guards{}, time.Minute, true}, {&guards{}, 0, false}, {nil, time.Minute, false}} {
		r := &runner{guards: c.guards, runAt: time.Now().Add(-c.ago)}
		if got := r.late(); got != c.want {
			t.Errorf("%+v: late %t", c, got)
		}
	}
}

// TestLookEnds: an attempt is not over before the look at its nodes is, which notes those
// that are dead.
func TestLookEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runner{cmd: &command{}, stderr: io.Discard}
		_, cancel := context.WithCancel(t.Context())
		a := &attempt{r: r, gone: make(chan struct{}), looking: make(chan struct{}), cancel: cancel,
			last: coordinated.Report{Ended: true}}
		close(a.gone)
		looked := false
		go func() {
			time.Sleep(time.Minute)
			looked = true
			close(a.looking)
		}()
		if a.watch(t.Context()); !looked {
			t.Error("the look goes on")
		}
	})
}
