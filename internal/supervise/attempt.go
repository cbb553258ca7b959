package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/regcache"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// attempt is one start of the program.
type attempt struct {
	r     *runner
	nodes []string
	proc  *exec.Cmd
	gone  chan struct{} // closed when the launcher has ended
	code  int           // read after gone

	heard   chan heard
	cancel  context.CancelFunc
	waiters sync.WaitGroup

	mu  sync.Mutex // guards sup
	sup *coordinated.Supervised

	last      coordinated.Report // newest
	ranks     []string           // their nodes
	opened    bool
	refused   string   // why Open failed; "" if it has not
	unfit     []string // nodes on which it failed, if it was not all
	restored  storage.Epoch
	computing bool
	stuckAt   time.Time // when points last changed
	awakeAt   time.Time // when the watch last looked
	points    uint64
	diedAt    time.Time
	noticedAt time.Time
	suspects  []string      // nodes to look at closely
	examined  chan struct{} // closed when the nodes have been looked at; nil before
	nodeDied  bool          // read after examined
	killed    bool          // by us

	procs   procs
	fallen  *fallen       // tasks that ended with an error, under srun; nil elsewhere
	looks   int           // at the nodes of a start that has not come to Open
	looking chan struct{} // closed when the newest is over; nil before the first
	missing []string      // nodes that it found dead; read after looking
	peek    peek          // at the nodes that have not announced the program

	startedAt, restoringAt time.Time
}

// heard is a report, or why there are no more.
type heard struct {
	rep coordinated.Report
	err error
	at  time.Time
}

func (r *runner) newAttempt(nodes []string) *attempt {
	r.mu.Lock()
	r.starts++ // guards talk as well
	r.mu.Unlock()
	r.used = nodes
	return &attempt{r: r, nodes: nodes, gone: make(chan struct{}), heard: make(chan heard)}
}

// start launches the program and begins to listen for its reports.
func (a *attempt) start() error {
	r := a.r
	r.sup.SetStart(r.starts)
	env := append(regcache.ForPrograms(os.Environ()), r.sup.Var(r.death.node))
	env = append(env, r.vars(a.nodes)...)
	line := r.line(a.nodes, env)
	a.proc = exec.Command(line[0], line[1:]...)
	a.proc.Stdout, a.proc.Stderr, a.proc.Stdin = r.stdout, r.stderr, os.Stdin
	if r.cmd.kind == launchSrun {
		a.fallen = &fallen{w: r.stderr}
		a.proc.Stderr, a.proc.WaitDelay = a.fallen, time.Second
	}
	a.proc.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	a.proc.Env = env
	a.startedAt = time.Now()
	if err := a.proc.Start(); err != nil {
		return fmt.Errorf("start %s: %w", line[0], err)
	}
	r.say("start %d: %s", r.starts, strings.Join(line, " "))
	go func() {
		err := a.proc.Wait()
		a.code = exitOf(err)
		close(a.gone)
	}()
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.waiters.Go(func() { a.listen(ctx) })
	a.waiters.Go(func() { a.procs.follow(ctx, r.sup) })
	return nil
}

// vars are the variables that a start of the program gets beside the user's.
func (r *runner) vars(nodes []string) []string {
	var vars []string
	if os.Getenv("HOLDFAST_GRACE") == "" && r.grace() > 0 {
		vars = append(vars, "HOLDFAST_GRACE="+r.grace().String())
	}
	if r.fresh {
		vars = append(vars, "HOLDFAST_FRESH=1")
	}
	if r.cmd.kind == launchSrun && r.flags.EndTimeout > 0 && os.Getenv("SLURM_WAIT") == "" {
		// A rank that dies in MPI_Init leaves the others waiting for it.
		wait := r.flags.EndTimeout + 10*time.Second
		vars = append(vars, fmt.Sprintf("SLURM_WAIT=%d", int(wait.Seconds())))
	}
	return append(vars, r.pmixVars(nodes)...)
}

// pmixVars keep Slurm's pmix plugin from hanging. With its direct connections the
// ring fence lets some ranks go too early, so that Open MPI hangs or crashes in
// one of twenty starts on busy nodes. Without them it finds the nodes of the step
// by their place in SLURM_JOB_NODELIST, which must be those of the step then and
// not of the job.
func (r *runner) pmixVars(nodes []string) []string {
	if r.cmd.kind != launchSrun || r.job == nil || os.Getenv("SLURM_HOSTFILE") != "" {
		return nil
	}
	var vars []string
	switch {
	case !r.asGiven():
		vars = append(vars, "SLURM_JOB_NODELIST="+strings.Join(nodes, ","))
	case r.cmd.picks || len(nodes) != len(r.nodes):
		return nil // nobody knows which they will be
	}
	if os.Getenv("SLURM_PMIX_DIRECT_CONN") == "" && os.Getenv("SLURM_PMIX_FENCE") == "" {
		vars = append(vars, "SLURM_PMIX_DIRECT_CONN=false")
	}
	return vars
}

// exitOf turns the end of a process into a code as a shell does.
func exitOf(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return exit.ExitCode()
	}
	return exitBad
}

func (a *attempt) exited() bool { return closed(a.gone) }

// patience is how long rank 0 may be silent: a little longer than the ranks wait
// for each other, which know better.
func (r *runner) patience() time.Duration {
	return max(r.opt.PeerTimeout, 1500*time.Millisecond) + 250*time.Millisecond
}

// listen passes on what rank 0 reports.
func (a *attempt) listen(ctx context.Context) {
	w, err := a.r.sup.Accept(ctx)
	if err != nil {
		return // ctx has ended: the attempt is over
	}
	a.supervise(w)
	stop := context.AfterFunc(ctx, func() { _ = w.Close() }) // ends Next below
	defer func() {
		stop()
		a.supervise(nil) // what is sent to a rank 0 that has left goes nowhere
		_ = w.Close()
	}()
	for {
		rep, err := w.Next(a.r.patience())
		select {
		case a.heard <- heard{rep, err, time.Now()}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// watch returns when the launcher has ended, by itself or because it had to.
func (a *attempt) watch(ctx context.Context) {
	defer func() {
		a.cancel()
		a.waiters.Wait()
		if a.looking != nil {
			<-a.looking // what it finds is read without a lock from now on
		}
	}()
	r := a.r
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-a.gone:
			a.drain()
			if !a.last.Ended && a.last.Stopped == 0 {
				a.killStep(ctx) // a launcher that was killed leaves its ranks behind
			}
			return
		case h := <-a.heard:
			before := a.last.Terminated
			if a.hear(h); a.last.Terminated && !before {
				r.terminated(ctx, a)
			}
		case s := <-r.signals:
			r.signalled(ctx, a, s)
		case <-tick.C:
		}
		if stood := a.awake(time.Now()); stood > guardSilence && !r.ours(ctx) {
			r.disowned = true
			a.end(ctx)
			return
		}
		if !a.noticedAt.IsZero() && !a.last.Ended {
			a.examine(ctx) // while the ranks that are left go
		}
		if why := a.overdue(ctx); why != "" {
			r.say("ending start %d: %s", r.starts, why)
			a.end(ctx)
			return
		}
	}
}

// awake is called again and again. Time in which this command stood still, because
// the job was suspended, is not held against the program. It returns how long that was.
func (a *attempt) awake(now time.Time) (stood time.Duration) {
	if gap := now.Sub(a.awakeAt); !a.awakeAt.IsZero() && gap > time.Second {
		a.startedAt, a.stuckAt = a.startedAt.Add(gap), a.stuckAt.Add(gap)
		stood = gap
	}
	a.awakeAt = now
	return stood
}

// drain takes the reports that came before the launcher ended.
func (a *attempt) drain() {
	a.catchUp()
	a.died(time.Now(), 0, "")
}

// catchUp takes the reports that are still to come from a rank 0 that is leaving.
func (a *attempt) catchUp() {
	wait := time.NewTimer(300 * time.Millisecond)
	defer wait.Stop()
	for a.opened && !a.last.Ended && a.noticedAt.IsZero() {
		select {
		case h := <-a.heard:
			a.hear(h)
		case <-wait.C:
			return
		}
	}
}

func (a *attempt) died(at time.Time, silent time.Duration, node string) {
	if !a.noticedAt.IsZero() {
		return
	}
	a.noticedAt, a.diedAt = at, at.Add(-silent)
	if node != "" {
		a.suspects = append(a.suspects, node)
	}
}

// hear takes a report.
func (a *attempt) hear(h heard) {
	r := a.r
	if h.err != nil {
		if a.refused != "" || a.last.Ended || a.last.Lost != nil {
			return
		}
		silent := time.Duration(0)
		what := "closed its connection"
		if errors.Is(h.err, os.ErrDeadlineExceeded) {
			silent, what = r.patience(), fmt.Sprintf("has been silent for %v", r.patience())
		}
		node := ""
		if len(a.ranks) > 0 {
			node = a.ranks[0]
		}
		a.died(h.at, silent, node)
		r.say("rank 0 on node %s is lost: it %s", node, what)
		return
	}
	rep := h.rep
	if rep.Failed != "" {
		a.refused, a.unfit = rep.Failed, rep.FailedNodes
		return
	}
	if !a.opened {
		a.opened, a.ranks = true, rep.Nodes
		r.unopened = 0
		if r.opening == 0 {
			r.opening = h.at.Sub(a.startedAt)
		}
		a.stuckAt = h.at
	}
	if rep.Restoring && a.restoringAt.IsZero() {
		a.restoringAt = h.at
	}
	if rep.Points != a.points || !rep.Ready {
		a.points, a.stuckAt = rep.Points, h.at
	}
	if rep.Restored != nil {
		a.restored = rep.Restored.Epoch
		r.note(map[string]storage.Epoch{rep.Restored.Level: a.restored})
		r.kept()
	} else if rep.Ready && !r.began {
		r.began, r.begunAt = true, h.at
		r.remember()
	}
	if rep.Points > 0 && !a.computing {
		r.homes, r.lacks = a.nodes, false
		a.computing = true
		if !r.computed {
			r.computed, r.workAt = true, h.at
		}
		r.account(a, rep, h.at)
	}
	if l := rep.Lost; l != nil && a.last.Lost == nil {
		a.died(h.at, time.Duration(l.Silent*float64(time.Second)), l.Node)
		r.say("rank %d on node %s is lost (noticed by rank %d: %s)", l.Rank, l.Node, l.Noticed, l.Observed)
	}
	if rep.Terminated && !a.last.Terminated {
		r.say("rank 0 was sent TERM, which means stop")
	}
	if rep.Ended && !a.last.Ended {
		a.stuckAt = h.at // from now on the launcher has to end
	}
	r.note(rep.Committed)
	for level := range rep.Committed {
		r.fresh = false // there is something to go on from
		r.advance()
		if level == storage.LevelGlobal {
			r.kept()
		}
	}
	r.measure(rep)
	a.last = rep
}

// account says how long it took from a death to computing again.
func (r *runner) account(a *attempt, rep coordinated.Report, now time.Time) {
	if r.starts == 1 {
		what := "a first start"
		if rs := rep.Restored; rs != nil {
			what = fmt.Sprintf("restored epoch %d from %s", rs.Epoch, rs.Level)
		}
		r.say("computing on %d ranks, %.2f s after the start: %s", len(a.ranks), now.Sub(a.startedAt).Seconds(), what)
		return
	}
	d := r.death
	var fetch time.Duration
	what := "nothing to restore, from the beginning"
	if rs := rep.Restored; rs != nil {
		fetch = time.Duration(rs.Fetch * float64(time.Second))
		what = fmt.Sprintf("epoch %d from %s", rs.Epoch, rs.Level)
	}
	restoring := a.restoringAt
	if restoring.IsZero() {
		restoring = now
	}
	restore := max(now.Sub(restoring)-fetch, 0)
	r.say("computing again %.2f s after the death: notice %.2f, relaunch %.2f, fetch %.2f, restore %.2f; %s",
		now.Sub(d.at).Seconds(),
		d.noticed.Sub(d.at).Seconds(), restoring.Sub(d.noticed).Seconds(), fetch.Seconds(), restore.Seconds(), what)
}

// startTimeout is how long a restart may take to come to Open. Launchers and
// MPI_Init hang now and then while a job loses nodes, so it is short at first, and
// longer after each start that was not given enough.
func (r *runner) startTimeout() time.Duration {
	if r.flags.StartTimeout > 0 {
		return r.flags.StartTimeout
	}
	return (5*r.opening + 10*time.Second) << min(r.unopened, 6)
}

// fallTime is how long a start goes on after one of its tasks has ended with an
// error before Open: time for the launcher to end by itself.
const fallTime = 2 * time.Second

// starting says why a start that has not come to Open must be ended, "" if it need
// not. How long a start takes is the program's and the site's affair, so slowness
// alone counts only beyond startTimeout; a task that has ended in error and a node
// that is dead leave no hope.
func (a *attempt) starting(ctx context.Context, now time.Time) string {
	r := a.r
	if at, node, text := a.fallen.first(); !at.IsZero() && now.Sub(at) > fallTime {
		a.died(at, 0, node)
		return "before the program came to Open, " + text
	}
	if at, node := a.procs.vanished(now); !at.IsZero() {
		a.died(at, 0, node)
		return fmt.Sprintf("the program on node %s has ended before all ranks came to Open", node)
	}
	if node, why := a.peek.away(ctx, a, now); node != "" {
		a.died(now, r.peekPatience(), node)
		return fmt.Sprintf("before the program has started on it, node %s %s", node, why)
	}
	if (r.starts > 1 || r.flags.StartTimeout > 0) && now.Sub(a.startedAt) > r.startTimeout() {
		a.died(now, 0, "")
		a.suspects = a.nodes
		return fmt.Sprintf("not all ranks have come to Open within %v", r.startTimeout().Round(100*time.Millisecond))
	}
	if a.looking == nil || closed(a.looking) {
		if len(a.missing) > 0 {
			a.died(now, 0, "")
			return "it waits for nodes that are dead: " + strings.Join(a.missing, ", ")
		}
		if now.Sub(a.startedAt) > r.lookAfter()<<min(a.looks, 20) {
			a.look(ctx)
		}
	}
	return ""
}

// lookAfter is when the nodes of a start that has not come to Open are first looked
// at; then after twice the time, and so on.
func (r *runner) lookAfter() time.Duration {
	after := 10 * time.Second
	if r.opening > 0 {
		after = max(3*r.opening, 3*time.Second)
	}
	if r.flags.StartTimeout > 0 {
		after = min(after, r.flags.StartTimeout/4)
	}
	return after
}

// look finds out in the background whether the nodes of the start are alive.
func (a *attempt) look(ctx context.Context) {
	if a.r.job == nil && len(a.r.nodes) == 0 {
		return
	}
	a.looks++
	done := make(chan struct{})
	a.looking = done
	go func() {
		defer close(done)
		if !a.r.examine(ctx, a.nodes, false, whileStarting) {
			return
		}
		for _, n := range a.nodes {
			if a.r.isDead(n) {
				a.missing = append(a.missing, n)
			}
		}
	}()
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// The time that survivors have to leave by themselves after a rank is lost.
const leaveTime = 300 * time.Millisecond

// overdue says why the run must be ended, "" if it need not.
func (a *attempt) overdue(ctx context.Context) string {
	r := a.r
	now := time.Now()
	switch {
	case a.last.Ended:
		if r.flags.EndTimeout > 0 && now.Sub(a.stuckAt) > r.flags.EndTimeout {
			return fmt.Sprintf("all ranks have closed, and the launcher still runs %v later", r.flags.EndTimeout)
		}
	case !a.noticedAt.IsZero():
		if now.Sub(a.noticedAt) > leaveTime {
			return "a rank is lost and the launcher has not ended"
		}
	case !a.opened:
		return a.starting(ctx, now)
	case a.opened && a.last.Ready && r.flags.Stall > 0 && now.Sub(a.stuckAt) > r.flags.Stall:
		a.died(now, now.Sub(a.stuckAt), "")
		return fmt.Sprintf("rank 0 has passed no Point for %v", r.flags.Stall)
	}
	if !r.stopping && a.computing && r.lead > 0 && !r.deadline.IsZero() && now.After(r.deadline.Add(-r.lead)) {
		r.atDeadline(ctx, a)
	}
	return ""
}

// end ends what is left of the run: the step, then its launcher. Ranks that live
// have left by themselves by now, as a rule.
func (a *attempt) end(ctx context.Context) {
	a.killed = true
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		a.killStep(ctx)
	}()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		_ = syscall.Kill(-a.proc.Process.Pid, s) // gone already is as good
		t := time.NewTimer(500 * time.Millisecond)
		select {
		case <-a.gone:
		case <-t.C:
		}
		t.Stop()
	}
	<-a.gone
	<-killed
}

// killStep ends the ranks of the run that are left, as far as Slurm reaches them.
func (a *attempt) killStep(ctx context.Context) {
	id := a.step()
	if id == "" {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		quick := slurm.Client{Timeout: 5 * time.Second}
		_ = quick.Signal(ctx, id, "KILL", slurm.Tasks) // a step that is gone, or will go with the job
	}()
	t := time.NewTimer(cancelTime)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C: // Slurm tries to reach the dead node as well
	}
}

// cancelTime is how long a restart waits for Slurm to end the step before it.
const cancelTime = 500 * time.Millisecond

// examine begins to look which nodes are dead, if that has not begun.
func (a *attempt) examine(ctx context.Context) {
	if a.examined != nil {
		return
	}
	a.examined = make(chan struct{})
	suspects, silent := a.suspects, a.noticedAt.After(a.diedAt)
	go func() {
		defer close(a.examined)
		if a.looking != nil {
			<-a.looking
		}
		a.nodeDied = a.r.examine(ctx, suspects, silent, afterDeath) || slices.ContainsFunc(a.missing, a.r.isDead)
	}()
}

// step is the Slurm step of the run, "" if it is not known.
func (a *attempt) step() string {
	if a.r.job == nil || a.last.Step == "" {
		return ""
	}
	return a.r.job.ID + "." + a.last.Step
}

func (a *attempt) supervise(w *coordinated.Supervised) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sup = w
}

// supervised is the connection to rank 0; nil before Open and after the end.
func (a *attempt) supervised() *coordinated.Supervised {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sup
}
