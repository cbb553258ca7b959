package supervise

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// limited is a run of a job whose limit is so far away, with a warning of the script so long
// before it, as sbatch -t and --signal=B:USR1@T say.
func limited(t *testing.T, limit, warning time.Duration) (*runner, *lockedBuffer) {
	t.Helper()
	end := time.Now().Add(limit)
	commands(t, map[string]string{"scontrol": `case "$*" in
*batch_script*) echo "#SBATCH --signal=B:USR1@` + fmt.Sprint(warning.Seconds()) + `";;
*) echo JobState=RUNNING Restarts=0 EndTime=` + end.Format("2006-01-02T15:04:05") + `;;
esac`})
	errs := &lockedBuffer{}
	r := &runner{job: &slurm.Job{ID: "5"}, stderr: errs, deadline: end, flags: Options{Requeue: true},
		signals: make(chan os.Signal, 1)}
	r.opt.Global = t.TempDir()
	r.readWarning(t.Context())
	if r.due == 0 || r.due > limit/2+time.Second {
		t.Errorf("limit %v, warning %v: the final checkpoint is due %v before", limit, warning, r.due)
	}
	return r, errs
}

// TestShortLimits: a signal that Slurm sends at once, because the time limit is shorter than
// what the script asks for, does not stop the program at once. One that comes in time does.
func TestShortLimits(t *testing.T) {
	for _, c := range []struct {
		limit, warning time.Duration // of the job
		left           time.Duration // when the signal comes
		obeyed         bool
	}{
		{5 * time.Minute, 300 * time.Second, 295 * time.Second, false},
		{3 * time.Minute, 300 * time.Second, 175 * time.Second, false},
		{6 * time.Minute, 300 * time.Second, 300 * time.Second, false},
		{24 * time.Hour, 300 * time.Second, 350 * time.Second, true},
		{2 * time.Minute, 45 * time.Second, 50 * time.Second, true},
	} {
		for _, computing := range []bool{true, false} {
			r, errs := limited(t, c.limit, c.warning)
			r.deadline = time.Now().Add(c.left)
			commands(t, map[string]string{"scontrol": "exit 1"}) // the deadline counts
			a := &attempt{r: r, computing: computing, proc: &exec.Cmd{Process: &os.Process{}}}
			a.last.Terminated = true // that stands for an answer to the request
			r.signalled(t.Context(), a, syscall.SIGUSR1)
			obeyed := r.stopping || !computing && strings.Contains(errs.String(), "as soon as the program computes")
			if obeyed != c.obeyed || !c.obeyed && (r.lead > c.limit/2 || r.deadline.IsZero()) {
				t.Errorf("%+v, computing %t: obeyed %t, the lead is %v\n%s", c, computing, obeyed, r.lead, errs)
			}
		}
	}
}

// TestInVain: a job that computes for less time than it takes to start and to stop is told
// so, and not requeued for ever.
func TestInVain(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/requeues"
	commands(t, map[string]string{"scontrol": `[ "$1" = requeue ] && echo >> ` + file +
		` || echo JobState=RUNNING Restarts=0`})
	end := func(worked, start time.Duration, code int) string {
		errs := &lockedBuffer{}
		now := time.Now()
		r := &runner{job: &slurm.Job{ID: "5"}, stderr: errs, flags: Options{Requeue: true}, near: true, computed: true,
			stopping: true,
			runAt:    now.Add(-worked - start), workAt: now.Add(-worked), stopAt: now,
			warning: slurm.Warning{Lead: 20 * time.Second}}
		r.opt = coordinated.Options{Global: dir}
		r.recall()
		if got := r.left(t.Context(), ExitStopped); got != code {
			t.Errorf("worked %v, start %v: got code %d, want %d\n%s", worked, start, got, code, errs)
		}
		return errs.String()
	}
	const little, much = 10 * time.Second, 25 * time.Second
	end(little, much, ExitStopped)
	end(little, much, ExitStopped)
	end(much, little, ExitStopped) // one that computes
	end(little, much, ExitStopped)
	if log := end(little, much, ExitStopped); !strings.Contains(log, "time limit of at least 2m0s (sbatch -t)") {
		t.Errorf("got no advice\n%s", log)
	}
	if log := end(little, much, exitBad); !strings.Contains(log, "giving up, not requeued: this run computed for 10s "+
		"and took 25s to start and to stop") {
		t.Errorf("it goes round for ever\n%s", log)
	}
	if b, _ := os.ReadFile(file); len(b) != 5 {
		t.Errorf("it was requeued %d times, want 5", len(b))
	}
}

// TestLostInFinal: a run that loses a rank in its final checkpoint is started again where the
// time limit leaves time, and only there.
func TestLostInFinal(t *testing.T) {
	for _, c := range []struct {
		left       time.Duration
		near, told bool
		stopped    storage.Epoch
		again      bool
	}{
		{102 * time.Second, true, false, 0, true},
		{15 * time.Second, true, false, 0, false},
		{102 * time.Second, true, true, 0, false},
		{102 * time.Second, false, false, 0, false},
		{102 * time.Second, true, false, 7, false},
	} {
		r := &runner{cmd: &command{}, stderr: io.Discard, near: c.near, told: c.told, stopping: true,
			deadline: time.Now().Add(c.left), lead: time.Minute,
			opening: 2 * time.Second, flags: Options{MaxRestarts: 9}, dead: map[string]string{},
			deaths: map[storage.Epoch]int{}}
		a := &attempt{r: r, examined: make(chan struct{}), opened: true, computing: true, killed: true,
			noticedAt: time.Now(), last: coordinated.Report{Stopped: c.stopped, Lost: &coordinated.LostStatus{}}}
		a.gone = make(chan struct{})
		close(a.examined)
		close(a.gone)
		if _, over := r.judge(t.Context(), a); over == c.again || r.stopping == c.again {
			t.Errorf("%+v: over %t, stopping %t", c, over, r.stopping)
		}
		if c.again && (r.lead <= 0 || r.lead >= c.left/2) {
			t.Errorf("the next final checkpoint begins %v before the limit", r.lead)
		}
	}
}

// TestStale: a job whose program dies again and again without a checkpoint in between is not
// requeued for ever; one that takes checkpoints is.
func TestStale(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/requeues"
	commands(t, map[string]string{"scontrol": `[ "$1" = requeue ] && echo >> ` + file +
		` || echo JobState=RUNNING Restarts=0`})
	end := func(checkpoint bool) (log string) {
		errs := &lockedBuffer{}
		r := &runner{cmd: &command{}, job: &slurm.Job{ID: "5"}, stderr: errs,
			flags: Options{Requeue: true, MaxRestarts: 2}, starts: 3, computed: true, dead: map[string]string{}}
		r.opt.Global = dir
		r.recall()
		a := &attempt{r: r, examined: make(chan struct{}), opened: true, computing: true, code: 139,
			noticedAt: time.Now(), points: 1}
		close(a.examined)
		if checkpoint {
			a.hear(heard{rep: coordinated.Report{Committed: map[string]storage.Epoch{storage.LevelLocal: 1}},
				at: time.Now()})
		}
		if code, over := r.again(t.Context(), a); code != exitBad || !over {
			t.Errorf("got code %d, over %t\n%s", code, over, errs)
		}
		return errs.String()
	}
	end(false)
	end(false)
	end(true)
	end(false)
	end(false)
	if b, _ := os.ReadFile(file); len(b) != 5 {
		t.Errorf("it was requeued %d times, want 5", len(b))
	}
	log := end(false)
	if b, _ := os.ReadFile(file); len(b) != 5 || !strings.Contains(log, "not requeued: 3 runs of the job in a row") {
		t.Errorf("it goes round for ever: requeued %d times\n%s", len(b), log)
	}
}
