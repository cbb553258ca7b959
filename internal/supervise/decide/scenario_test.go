package decide

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/test/scenario"
)

// TestScenarios plays testdata/*.txt: what is done about what happens in a run. The commands are
// those of scene.Run.
func TestScenarios(t *testing.T) {
	scenario.Play(t, 25, "", func() scenario.Scene { return &scene{} })
}

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// scene is a run, and the world around it. It answers at once what is answered at once.
type scene struct {
	m      *Machine
	now    time.Time
	tick   time.Time // the newest
	timer  time.Time
	out    strings.Builder
	shows  JobShown
	faults map[string]string
	fails  map[string]error // of start, requeue and salvage
	deaf   bool             // rank 0 cannot be asked
}

// words are the arguments of a command: name=value, or a name alone.
type words []string

func (w words) has(name string) bool { _, ok := w.find(name); return ok }

func (w words) find(name string) (string, bool) {
	for _, arg := range w {
		if k, v, _ := strings.Cut(arg, "="); k == name {
			return strings.ReplaceAll(v, "_", " "), true
		}
	}
	return "", false
}

func (w words) text(name string) string { v, _ := w.find(name); return v }

func (w words) list(name string) []string {
	return strings.FieldsFunc(w.text(name), func(r rune) bool { return r == ',' })
}

func (w words) number(name string, otherwise int) int {
	n, err := strconv.Atoi(w.text(name))
	if err != nil {
		return otherwise
	}
	return n
}

func (w words) span(name string, otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(w.text(name))
	if err != nil {
		return otherwise
	}
	return d
}

// levels reads level:epoch,level:epoch.
func (w words) levels(name string) map[string]uint64 {
	var at map[string]uint64
	for _, l := range w.list(name) {
		level, n, _ := strings.Cut(l, ":")
		e, _ := strconv.Atoi(n)
		if at == nil {
			at = map[string]uint64{}
		}
		at[level] = uint64(e)
	}
	return at
}

var signals = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2}

func (s *scene) Take() string {
	defer s.out.Reset()
	return s.out.String()
}

func (s *scene) Run(args []string) error {
	if len(args) == 0 {
		return nil
	}
	w, rest := words(args[1:]), strings.Join(args[1:], " ")
	switch args[0] {
	case "run": // a run begins; those of before are forgotten
		s.begin(w)
	case "slurm": // what Slurm says of the job from now on
		s.slurm(w)
	case "fault": // of a node, from now on; none without a text
		if s.faults[args[1]] = strings.Join(args[2:], " "); len(args) == 2 {
			delete(s.faults, args[1])
		}
	case "fails": // start, requeue or salvage, from now on; not any more without a text
		if s.fails[args[1]] = errors.New(strings.Join(args[2:], " ")); len(args) == 2 {
			delete(s.fails, args[1])
		}
	case "deaf":
		s.deaf = true
	case "examined":
		s.step(Examined{s.faults})
	case "peeked":
		s.step(Peeked{s.faults})
	case "announced":
		s.step(Announced{args[1], w.text("step")})
	case "vanished":
		s.step(Vanished{args[1]})
	case "task":
		s.step(TaskFailed{args[1], strings.Join(args[2:], " ")})
	case "none-left":
		s.step(NoneLeft{w[0] == "true"})
	case "report":
		s.step(Reported{report(w)})
	case "lost":
		s.step(Lost{w.span("silent", 0)})
	case "exits":
		n, err := strconv.Atoi(args[1])
		s.step(Exited{n})
		return err
	case "signal":
		s.step(Signalled{signals[args[1]]})
	case "wait", "freeze":
		d, err := time.ParseDuration(rest)
		if s.wait(s.now.Add(d), args[0] == "freeze"); err != nil {
			return err
		}
	default:
		return errors.New("no such command")
	}
	return nil
}

// wait lets time pass; frozen means that this command does not notice.
func (s *scene) wait(end time.Time, frozen bool) {
	for s.now.Before(end) {
		next := s.tick.Add(100 * time.Millisecond)
		if !s.timer.IsZero() && s.timer.Before(next) {
			next, s.timer = s.timer, time.Time{}
		}
		if frozen || next.After(end) {
			next = end
		}
		if s.now = next; !frozen {
			s.tick = s.now
			s.step(Tick{})
		}
	}
	s.tick = s.now
}

func (s *scene) begin(w words) {
	limits := Limits{MinNodes: w.number("min-nodes", 1), MinRanks: w.number("min-ranks", 0),
		MaxRestarts:  w.number("max-restarts", 10),
		StartTimeout: w.span("start-timeout", 0), EndTimeout: w.span("end-timeout", 10*time.Minute),
		Stall: w.span("stall", 0), WaitNodes: w.span("wait-nodes", 10*time.Minute),
		BeginAnew: w.span("begin-anew", 0),
		Requeue:   w.has("requeue"), Lead: w.span("lead", 0)}
	c := Config{Limits: limits, Nodes: w.list("nodes"), Here: w.list("here"), Recovers: w.has("recovers"),
		Images:    w.has("images"),
		CUDA:      w.has("cuda"),
		Announced: w.has("announced"), Watched: w.has("watched"), Local: w.has("local"), Global: w.has("global")}
	c.Width, c.Began = w.number("width", len(c.Nodes)), epoch.Add(-w.span("began", 0))
	c.Full = Full{Nodes: w.number("full", c.Width), Ranks: w.number("ranks", c.Width)}
	if w.has("job") {
		c.Job = &slurm.Job{ID: "5", Restarts: w.number("restarts", 0)}
		c.Grace, c.GraceTime = w.span("grace", 30*time.Second), w.span("grace-time", 0)
		if w.has("limit") {
			c.Deadline = epoch.Add(w.span("limit", 0))
		}
		c.Warning.Signal, c.Warning.Lead = w.text("warning"), w.span("warning-lead", 0)
	}
	c.Memory = Memory{Seconds: w.span("checkpoint", 0).Seconds(), NoProgress: w.number("vain", 0), Safe: w.has("safe"),
		Took: w.has("took"), Stale: w.number("stale", 0)}
	if w.has("begun") {
		c.Memory.BegunAt = epoch.Add(-w.span("begun", 0))
	}
	*s = scene{m: New(c), now: epoch, tick: epoch, faults: map[string]string{}, fails: map[string]error{}}
	s.slurm(words{"RUNNING", "limit=" + w.text("limit")})
	s.step(Begin{})
}

func (s *scene) slurm(w words) {
	if strings.HasPrefix(w[0], "error=") {
		s.shows = JobShown{Err: &slurm.CommandError{Args: []string{"scontrol"}, Stderr: w.text("error"),
			Err: errors.New("exit status 1")}}
		return
	}
	s.shows = JobShown{Info: slurm.JobInfo{State: w[0], Restarts: w.number("restarts", 0)}}
	if d := w.span("limit", 0); d > 0 {
		s.shows.Info.End = epoch.Add(d)
	}
	if w.has("preempted") {
		s.shows.Info.Preempted = epoch.Add(w.span("preempted", 0))
	}
}

func report(w words) job.Report {
	r := job.Report{Nodes: w.list("nodes"), Step: w.text("step"), Restoring: w.has("restoring"),
		Ready: w.has("ready"), Points: uint64(w.number("points", 0)), Committed: w.levels("committed"),
		Stopped: uint64(w.number("stopped", 0)), Ended: w.has("ended"), Terminated: w.has("terminated"),
		Unrestorable: w.text("unrestorable"), Missing: w.has("missing"), Failed: w.text("failed"),
		FailedNodes: w.list("failed-nodes"), Failing: w.text("failing"),
		Daemon: w.has("daemon")}
	for level, e := range w.levels("restored") {
		r.Restored = &job.RestoredStatus{Epoch: e, Level: level, Fetch: 0.5}
	}
	for _, d := range w.list("measured") {
		e, took, _ := strings.Cut(d, ":")
		n, _ := strconv.Atoi(e)
		d, _ := time.ParseDuration(took)
		r.Newest = &job.EpochStatus{Epoch: uint64(n),
			DurableSeconds: map[string]float64{storage.LevelGlobal: d.Seconds()}}
	}
	if w.has("lost") {
		r.Lost = &job.LostStatus{Rank: 1, Node: w.text("lost"), Observed: "connection reset",
			Silent: w.span("silent", 0).Seconds(), Aborted: w.text("aborted")}
	}
	return r
}

// step brings an event to the machine, and the answers to what it asks.
func (s *scene) step(ev Event) {
	for todo := s.m.Step(s.now, ev); len(todo) > 0; {
		a := todo[0]
		todo = todo[1:]
		if answer := s.carryOut(a); answer != nil {
			todo = append(todo, s.m.Step(s.now, answer)...)
		}
	}
}

func (s *scene) print(format string, args ...any) {
	fmt.Fprintf(&s.out, "%s %s\n", s.since(s.now), strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

func (s *scene) since(t time.Time) string { return t.Sub(epoch).Round(time.Millisecond).String() }

func (s *scene) carryOut(a Action) Event {
	list := func(name string, nodes []string) string {
		if len(nodes) == 0 {
			return ""
		}
		return name + "=" + strings.Join(nodes, ",") + " "
	}
	flag := func(name string, set bool) string {
		if !set {
			return ""
		}
		return name + " "
	}
	switch a := a.(type) {
	case Say:
		s.print("%q", a.Text)
	case Start:
		ranks := ""
		if a.Ranks != 0 {
			ranks = fmt.Sprintf("ranks=%d ", a.Ranks)
		}
		for _, e := range a.Skip {
			ranks += fmt.Sprintf("skip=%d ", e)
		}
		s.print("start %s%s%s%s%s%s", list("on", a.Nodes), list("without", a.Out), ranks, flag("fresh", a.Fresh),
			flag("continues", a.Continues), flag("node-lost", a.NodeLost))
		return Started{"srun ./app", s.fails["start"]}
	case End:
		s.print("end %s", a.Step)
	case EndStep:
		if a.Step != "" {
			s.print("end step %s", a.Step)
		}
	case Pass:
		s.print("pass on %s", a.Signal)
	case RequestStop:
		s.print("request a final checkpoint within %v", a.Within)
		return Asked{!s.deaf}
	case Tell:
		s.print("tell %v", a.Within)
	case Peek:
		s.print("peek %s", list("at", a.Nodes))
	case Examine:
		s.print("examine %s%s%s%s", list("closely", a.Closely), list("silent", a.Silent), list("dead", a.Dead),
			flag("patiently", a.Patient))
	case Exclude:
		if len(a.Nodes) > 0 {
			s.print("exclude %s", strings.Join(a.Nodes, ","))
		}
	case AdviseMPI:
		s.print("advise which MPI")
	case AskJob:
		s.print("ask about the job")
		return s.shows
	case Requeue:
		s.print("requeue")
		if err := s.fails["requeue"]; err != nil {
			return Requeued{fmt.Errorf("requeue job 5: %w", &slurm.CommandError{Args: []string{"scontrol"},
				Stderr: err.Error(), Err: errors.New("exit status 1")})}
		}
		return Requeued{}
	case Salvage:
		s.print("salvage %swithin %v", list("from", a.Nodes), a.Within)
		return Salvaged{a.Have + 1, s.fails["salvage"]}
	case Remember:
		s.print("remember begun=%t safe=%t vain=%d stale=%d checkpoint=%.1fs", !a.Memory.BegunAt.IsZero(),
			a.Memory.Safe, a.Memory.NoProgress, a.Memory.Stale, a.Memory.Seconds)
	case Timer:
		s.timer = a.At
	case Exit:
		if a.Err != nil {
			s.print("exit: %v", a.Err)
		} else {
			s.print("exit %d", a.Code)
		}
	default:
		panic(fmt.Sprintf("no such action: %T", a))
	}
	return nil
}
