package supervise

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/regcache"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// start is one start of the program: its launcher, and the reports of its ranks.
type start struct {
	run    *run
	ctx    context.Context // ends with it
	cancel context.CancelFunc
	proc   *child.Process                 // the launcher
	ending chan struct{}                  // closed when it is to
	caught chan struct{}                  // closed when rank 0 has nothing more to say
	rank0  atomic.Pointer[job.Supervised] // nil before Open and after the end
	hands  sync.WaitGroup
	mu     sync.Mutex // guards over
	over   bool       // no more hands
}

// launch starts the program and begins to listen for its reports.
func (r *run) launch(ctx context.Context, a decide.Start) (line string, err error) {
	r.log.begin(a.Number)
	r.sup.SetStart(a.Number)
	cmd := r.command(a, r.sup.Var(a.NodeLost, a.Continues))
	r.pauses.begins(a.Nodes)
	s := &start{run: r, ending: make(chan struct{}), caught: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if r.cmd.kind == launchSrun {
		failed := func(node, text string) {
			s.hand(func() { r.post(s.ctx, decide.TaskFailed{Node: node, Text: text}) })
		}
		cmd.Stderr, cmd.WaitDelay = taskWatch(r.opt.Stderr, failed), time.Second
	}
	if r.images != nil {
		s.proc, err = r.images.start(ctx, cmd, a)
	} else if s.proc, err = child.Start(cmd); err != nil {
		err = fmt.Errorf("start %s: %w", cmd.Args[0], err)
	}
	if err != nil {
		s.cancel()
		return "", err
	}
	r.start = s
	if r.images != nil {
		s.hands.Go(func() { r.images.follow(s) })
	}
	s.hands.Go(s.listen)
	s.hands.Go(s.follow)
	if r.cmd.kind.collects() {
		s.hands.Go(s.watchChildren)
	}
	r.looks.Go(func() { s.wait(ctx) })
	return strings.Join(cmd.Args, " "), nil
}

// command returns the launcher of a start. finds is the variable by which the ranks find this command.
func (r *run) command(a decide.Start, finds string) *exec.Cmd {
	env := append(regcache.ForPrograms(os.Environ()), finds)
	env = append(env, r.vars(a)...)
	args := r.line(a, env)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Stdin, cmd.Env = r.opt.Stdout, r.opt.Stderr, os.Stdin, env
	return cmd
}

// hand runs f beside the start; false when that is over.
func (s *start) hand(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.hands.Go(f)
	}
	return !s.over
}

// wait waits for the launcher and for the last reports of its ranks, unless it was ended.
func (s *start) wait(ctx context.Context) {
	code := s.proc.Code()
	s.run.images.ended(code)
	s.catchUp()
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.cancel()
	s.hands.Wait()
	s.run.post(ctx, decide.Exited{Code: code})
}

// catchUp waits for the reports that are still to come from a rank 0 that is leaving.
func (s *start) catchUp() {
	if s.rank0.Load() == nil {
		return
	}
	select {
	case <-s.caught:
	case <-s.ending:
	case <-time.After(catchTime):
	}
}

// catchTime is how long the reports of a rank 0 are waited for whose launcher has ended. They
// end with its process; longer waits are for a node that is gone as well.
const catchTime = time.Second

func (s *start) listen() {
	caught := sync.OnceFunc(func() { close(s.caught) })
	defer caught()
	for again := true; again; {
		w, err := s.run.sup.Accept(s.ctx)
		if err != nil {
			return // the start is over
		}
		again = s.hear(w, caught)
	}
}

// hear passes on the reports of one rank 0, and reports whether another may take its place: the rank 0 of the next node
// daemon.
func (s *start) hear(w *job.Supervised, caught func()) (again bool) {
	s.rank0.Store(w)
	stop := context.AfterFunc(s.ctx, func() { _ = w.Close() }) // ends Next below
	defer func() {
		stop()
		s.rank0.Store(nil) // messages to a rank 0 that has left are lost
		_ = w.Close()
	}()
	// Rank 0 may be silent a little longer than the ranks wait for each other, which know better.
	patience := s.run.cfg.PeerTimeout + 250*time.Millisecond
	for s.ctx.Err() == nil {
		rep, err := w.Next(patience)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.run.post(s.ctx, decide.Lost{Silent: patience})
			return false
		case err != nil:
			s.run.post(s.ctx, decide.Lost{})
			return again
		}
		s.run.post(s.ctx, decide.Reported{Report: rep})
		again = rep.Daemon
		if rep.Ended || rep.Lost != nil {
			caught()
			again = false
		}
	}
	return false
}

// follow takes the processes that announce themselves, one for each node, and waits for their
// ends: srun goes on waiting for the others when those of a node have ended and no process on it is
// left to report that.
func (s *start) follow() {
	for {
		p, err := s.run.sup.AcceptCaller(s.ctx, job.CallerStarted)
		if err != nil {
			return
		}
		s.run.post(s.ctx, decide.Announced{Node: p.Node, Step: p.Step})
		s.hands.Go(func() {
			stop := context.AfterFunc(s.ctx, func() { _ = p.Close() }) // ends Gone
			defer stop()
			p.AwaitEnd()
			s.run.post(s.ctx, decide.Vanished{Node: p.Node})
			_ = p.Close()
		})
	}
}

func (s *start) request(within time.Duration) (answer decide.Event) {
	if s.hand(func() {
		w := s.rank0.Load()
		ok := w != nil && w.Request(true, within) == nil
		if !ok {
			s.catchUp() // rank 0 may have left just now
		}
		s.run.post(s.ctx, decide.Asked{OK: ok})
	}) {
		return nil
	}
	return decide.Asked{}
}

func (s *start) tell(within time.Duration) {
	if w := s.rank0.Load(); w != nil {
		if err := w.Tell(within); err != nil {
			s.run.log.say("warning: %v", err)
		}
	}
}

// end ends the step, and the launcher after it.
func (s *start) end(ctx context.Context, step string) {
	close(s.ending)
	s.hand(func() {
		var stepEnded sync.WaitGroup
		stepEnded.Go(func() { endStep(ctx, step) })
		s.proc.End(500 * time.Millisecond)
		stepEnded.Wait()
	})
}

// endTime is how long a restart waits for Slurm to end the step before it.
const endTime = 500 * time.Millisecond

// endStep ends the ranks of a step that are left, as far as Slurm reaches them.
func endStep(ctx context.Context, id string) {
	if id == "" {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		quick := slurm.Client{Timeout: 5 * time.Second}
		_ = quick.Signal(ctx, id, "KILL") // it may have ended, or will with the job
	}()
	select {
	case <-done:
	case <-time.After(endTime): // Slurm tries to reach the dead node as well
	}
}

// vars returns the variables that a start of the program gets beside the user's.
func (s *setup) vars(a decide.Start) []string {
	var vars []string
	if s.prog.Grace == 0 && s.cfg.Grace > 0 {
		vars = append(vars, "HOLDFAST_GRACE="+s.cfg.Grace.String())
	}
	if a.Fresh {
		vars = append(vars, "HOLDFAST_FRESH=1")
	}
	if s.cmd.kind == launchSrun && s.cfg.EndTimeout > 0 && os.Getenv("SLURM_WAIT") == "" {
		// A rank that dies in MPI_Init leaves the others waiting for it.
		wait := s.cfg.EndTimeout + 10*time.Second
		vars = append(vars, fmt.Sprintf("SLURM_WAIT=%d", int(wait.Seconds())))
	}
	return slices.Concat(vars, s.layerVars(), s.pmixVars(a))
}

// pmixVars keep Slurm's pmix plugin from hanging. With its direct connections the
// ring fence lets some ranks go too early, so that Open MPI hangs or crashes in
// one of twenty starts on busy nodes. Without them it finds the nodes of the step
// by their place in SLURM_JOB_NODELIST, which must be those of the step then and
// not of the job.
func (s *setup) pmixVars(a decide.Start) []string {
	if s.cmd.kind != launchSrun || s.cfg.Job == nil || os.Getenv("SLURM_HOSTFILE") != "" {
		return nil
	}
	var vars []string
	switch {
	case !s.asGiven(a):
		vars = append(vars, "SLURM_JOB_NODELIST="+slurm.FoldNodes(a.Nodes))
	case s.cmd.picks || len(a.Nodes) != len(s.cfg.Nodes):
		return nil // the nodes are not known yet
	}
	if os.Getenv("SLURM_PMIX_DIRECT_CONN") == "" && os.Getenv("SLURM_PMIX_FENCE") == "" {
		vars = append(vars, "SLURM_PMIX_DIRECT_CONN=false")
	}
	return vars
}

// asGiven reports whether a start is by the user's own command line.
func (s *setup) asGiven(a decide.Start) bool { return a.Number == 1 && s.opt.Spares == 0 && !s.fewer }

// line returns the command line of a start. The first start of a command that needs no change is the
// user's own.
func (s *setup) line(a decide.Start, env []string) []string {
	switch {
	case s.cmd.kind == launchSrun && s.cfg.Job != nil:
		if s.asGiven(a) || len(a.Nodes) == 0 {
			return append(append([]string{s.cmd.name}, s.cmd.opts...), s.cmd.program()...) // as the user gave it
		}
		cpus := 0
		if each := s.cfg.Job.CPUsPerNode; len(each) > 0 {
			cpus = slices.Min(each)
		}
		return s.cmd.onNodes(a.Nodes, a.Out, cmp.Or(a.Ranks, s.tasks), cpus)
	case s.cmd.kind == launchSrun, s.cmd.kind == launchPlain:
		return append(append([]string{s.cmd.name}, s.cmd.opts...), s.cmd.prog...)
	}
	var vars []string
	for _, v := range env {
		if name, _, ok := strings.Cut(v, "="); ok && strings.HasPrefix(name, "HOLDFAST_") &&
			!slices.Contains(vars, name) {
			vars = append(vars, name)
		}
	}
	if s.asGiven(a) && len(s.cmd.hosts) == 0 {
		a.Nodes = nil
	}
	return s.cmd.onHosts(a.Nodes, vars, a.Ranks)
}

var taskEnded = regexp.MustCompile(`^srun: error: (\S+): (tasks? [\d,-]+: .+)`)

// taskWatch passes on srun's standard error and calls failed for the first task that ended with an error. srun reports
// that and goes on waiting for the others, which may wait for that one in MPI_Init.
func taskWatch(w io.Writer, failed func(node, text string)) *child.Lines {
	seen := false
	return &child.Lines{To: w, Each: func(line []byte) {
		if m := taskEnded.FindSubmatch(line); m != nil && !seen {
			seen = true
			failed(string(m[1]), fmt.Sprintf("%s (node %s)", bytes.TrimSpace(m[2]), m[1]))
		}
	}}
}

// childrenEvery is how often a launcher's processes are looked at.
const childrenEvery = time.Second

// collects reports whether the launcher is the parent of ranks, and collects them.
func (l launcherKind) collects() bool { return l == launchOpenMPI || l == launchMPICH }

// watchChildren reports whether mpirun has processes left. That of Open MPI may wait for ever for a rank that was
// killed in MPI_Init, or for itself after TERM: all ranks have ended then, and it collects none of them.
func (s *start) watchChildren() {
	tick := time.NewTicker(childrenEvery)
	defer tick.Stop()
	for before := false; ; {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		if is := noneLeft(s.proc.PID()); is != before {
			before = is
			s.run.post(s.ctx, decide.NoneLeft{Is: is})
		}
	}
}

// noneLeft reports whether a process has children, and all of them have ended.
func noneLeft(pid int) bool {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // one for each thread
	zombies := 0
	for _, list := range lists {
		b, _ := os.ReadFile(list) // a thread that has ended has none
		for number := range bytes.FieldsSeq(b) {
			pid, _ := strconv.Atoi(string(number)) // a number
			if p, err := child.Look(pid); err != nil || !p.Ended {
				return false // it lives, or was collected just now
			}
			zombies++
		}
	}
	return zombies > 0
}
