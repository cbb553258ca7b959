package supervise

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// requeuers are processes on other nodes of the job that put it back into the queue when
// the node of this command dies: Slurm leaves a job with --no-kill as it is then,
// without a script. They are steps of the job, started before the program, so that
// there is no time without them. Users know them as guards.
type requeuers struct {
	run    *run
	most   int // that watch at a time
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	up     chan struct{} // closed when the first one watches
	first  sync.Once

	mu    sync.Mutex // guards the fields below
	on    map[string]*requeuerStep
	avoid map[string]time.Time // node -> until when it gets none
	told  bool                 // that none could be started
	dead  []string
}

type requeuerStep struct {
	proc  *child.Process
	watch bool // it has called
}

// Times of the requeuers.
const (
	beatEvery       = time.Second
	requeuerStart   = 30 * time.Second // until one that was started must have called
	requeuerSilent  = 10 * time.Second // after which it counts as lost
	requeuerRetry   = time.Minute      // until a node where one failed gets the next
	requeuersAtMost = 2                // they do not die together, as a rule
	firstRequeuer   = 5 * time.Second  // that the first start of the program waits for one
)

// startRequeuers starts those of a job that is to be requeued and has another node to put
// them on; nil where there can be none.
func (r *run) startRequeuers() *requeuers {
	job := r.cfg.Job
	if job == nil || !r.cfg.Requeue || r.cmd.kind == launchPlain || !slices.ContainsFunc(job.Nodes, r.here) {
		return nil // holdfast run on a login node: no node of the job is special
	}
	others := slices.DeleteFunc(slices.Clone(job.Nodes), r.here)
	if len(others) == 0 {
		r.log.say("warning: the job has one node: if it dies, Slurm alone decides whether the job is requeued")
		return nil
	}
	g := &requeuers{run: r, most: min(requeuersAtMost, len(others)), up: make(chan struct{}),
		on: map[string]*requeuerStep{}, avoid: map[string]time.Time{}}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.wg.Go(g.accept)
	g.wg.Go(func() {
		for ok := true; ok; ok = sleep.For(g.ctx, beatEvery) == nil {
			for _, n := range slices.Backward(others) { // last nodes first: those are spare
				g.mu.Lock()
				wanted := len(g.on) < g.most && g.on[n] == nil && !slices.Contains(g.dead, n) &&
					time.Now().After(g.avoid[n])
				g.mu.Unlock()
				if wanted {
					g.start(n)
				}
			}
		}
	})
	return g
}

// installedOnNodes reports whether this command is there on other nodes of the job, too: it can
// stand before the program then. A requeuer that watches shows it. The first start waits shortly
// for one.
func (r *run) installedOnNodes(ctx context.Context) bool {
	watched := false
	if g := r.requeuers; g != nil {
		select {
		case <-g.up:
			watched = true
		case <-time.After(firstRequeuer):
			r.log.say("warning: no guard watches yet: if this node dies now, requeue the job by hand")
		}
	}
	switch {
	case r.cmd.kind != launchSrun || r.cfg.Job == nil || r.cmd.bound:
		return false
	case r.requeuers != nil || len(r.cfg.Nodes) == 0:
		return watched
	}
	quick := slurm.Client{Timeout: firstRequeuer}
	return quick.RunOn(ctx, r.cfg.Nodes[len(r.cfg.Nodes)-1], r.opt.Self, "--version") == nil
}

// exclude tells which nodes are dead: requeuers go elsewhere.
func (g *requeuers) exclude(dead []string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = dead
}

func (g *requeuers) start(node string) {
	cmd := exec.Command("srun", "--overlap", "--mpi=none", "-Q", "-N1", "-n1", "-J",
		job.GuardStep, "-w", node, "-i", "none", g.run.opt.Self, "guard")
	said := &requeuerOutput{w: g.run.opt.Stderr}
	said.rest.To, said.rest.Left = &said.text, 1000
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = said, said, time.Second
	cmd.Env = append(slurm.Environ(os.Environ()), g.run.sup.Var(false, false), "SLURM_RESTART_COUNT="+
		os.Getenv("SLURM_RESTART_COUNT"))
	proc, err := child.Start(cmd)
	p := &requeuerStep{proc: proc}
	if err != nil {
		g.failed(node, p, err.Error())
		return
	}
	g.mu.Lock()
	g.on[node] = p
	g.mu.Unlock()
	late := time.AfterFunc(requeuerStart, func() {
		g.giveUp(node, p, "it has not called within "+requeuerStart.String())
	})
	g.wg.Go(func() {
		err := p.proc.Wait()
		late.Stop()
		if g.ctx.Err() != nil {
			return
		}
		text := said.String()
		if err != nil && text == "" {
			text = err.Error()
		}
		g.failed(node, p, text)
	})
}

// giveUp ends a requeuer that does not call, so that another node gets one.
func (g *requeuers) giveUp(node string, p *requeuerStep, why string) {
	g.mu.Lock()
	keep := p.watch || g.on[node] != p
	g.mu.Unlock()
	if keep || g.ctx.Err() != nil {
		return
	}
	p.proc.Signal(syscall.SIGKILL)
	g.failed(node, p, why)
}

// failed notes that the requeuer of a node has ended. It is said while none has come up.
func (g *requeuers) failed(node string, p *requeuerStep, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.on[node] == p {
		delete(g.on, node)
	}
	g.avoid[node] = time.Now().Add(requeuerRetry)
	select {
	case <-g.up:
		return
	default:
	}
	if !g.told {
		g.told = true
		g.run.log.say("warning: cannot start a guard on node %s: %s; if the node of this command dies, you may have "+
			"to requeue the job by hand", node, strings.TrimSpace(why))
	}
}

// watches notes whether the requeuer of a node does, and returns it; nil if there is none.
func (g *requeuers) watches(node string, watch bool) *requeuerStep {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.on[node]
	if p != nil {
		p.watch = watch
	}
	return p
}

// accept takes the requeuers that call, and sends each a sign of life of this command.
func (g *requeuers) accept() {
	for {
		c, err := g.run.sup.AcceptCaller(g.ctx, job.CallerGuard)
		if err != nil {
			return
		}
		g.watches(c.Node, true)
		g.first.Do(func() { close(g.up) })
		g.wg.Go(func() { g.beat(c) })
	}
}

// beat goes on until the requeuer is lost or this command ends.
func (g *requeuers) beat(c *job.Caller) {
	ctx, lost := context.WithCancel(g.ctx)
	g.wg.Go(func() {
		defer lost()
		for c.Hear(&job.Beat{}, requeuerSilent) == nil {
		}
	})
	for c.Say(job.Beat{}) == nil && sleep.For(ctx, beatEvery) == nil {
	}
	if g.ctx.Err() != nil {
		_ = c.Say(job.Beat{Over: true}) // a guard that is gone needs no word
		_ = c.Close()
		return
	}
	_ = c.Close()
	if p := g.watches(c.Node, false); p != nil { // it may live, and call again
		time.AfterFunc(requeuerSilent, func() { g.giveUp(c.Node, p, "it has fallen silent") })
	}
}

// stop announces to the requeuers that this command ends in order, and waits shortly until they have
// ended.
func (g *requeuers) stop() {
	if g == nil {
		return
	}
	g.cancel()
	ended := make(chan struct{})
	go func() { g.wg.Wait(); close(ended) }()
	select {
	case <-ended:
		return
	case <-time.After(2 * time.Second):
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.on {
		p.proc.Signal(syscall.SIGKILL)
	}
}

// requeuerOutput passes on the output of requeuers, and keeps srun's reason why there is none.
type requeuerOutput struct {
	w    io.Writer
	rest child.Capped // to text
	text strings.Builder
}

func (g *requeuerOutput) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte("holdfast guard")) {
		_, _ = g.w.Write(b)
		return len(b), nil
	}
	return g.rest.Write(b)
}

func (g *requeuerOutput) String() string {
	return strings.Join(strings.FieldsFunc(g.text.String(), func(r rune) bool { return r == '\n' }), "; ")
}

// requeuePatience is for how long a requeuer asks a run that has been silent for decide.Silence. A frozen node, or one
// that is cut off, is given up after the sum of both; a requeued job loses its work since its newest checkpoint, so
// this is no place for haste.
const requeuePatience = 10 * time.Second

// Requeuer is the process that Run starts on another node than its own. It returns when
// Run has ended, or when Run's node has died and the job is back in the queue.
func Requeuer(ctx context.Context, stderr io.Writer) error {
	own, ok, err := slurm.FromEnv(os.Getenv)
	if err != nil || !ok {
		return fmt.Errorf("holdfast run starts this inside a Slurm job; there is nothing to guard here: %w", err)
	}
	o := job.Inquiry{Supervisor: os.Getenv(config.SupervisorVar), Job: own.ID, Restarts: own.Restarts,
		Patience: requeuePatience}
	return requeueAfterDeath(ctx, &o, own.NodeName, decide.Silence, func(format string, args ...any) {
		fmt.Fprintf(stderr, "holdfast guard on %s: %s\n", own.NodeName, fmt.Sprintf(format, args...))
	})
}

// requeueAfterDeath attends to a run from a node, and inquires after a silence.
func requeueAfterDeath(ctx context.Context, o *job.Inquiry, node string, silence time.Duration,
	say func(format string, args ...any)) error {
	for ctx.Err() == nil {
		over, err := job.ServeGuard(ctx, o.Supervisor, node, silence)
		if over || ctx.Err() != nil {
			return nil
		}
		fate, why := o.Fate(ctx)
		switch fate {
		case job.SupervisorEnded:
			say("holdfast run has ended: %s", why)
			return nil
		case job.SupervisorDead:
			say("holdfast run is dead: %s; job %s is requeued", why, o.Job)
			err := o.Client.Requeue(ctx, o.Job, o.Restarts)
			if err == nil {
				return nil
			}
			say("%v", err)
			if !slurm.Temporary(err) {
				return err
			}
		default:
			say("holdfast run did not answer (%v); %s", err, why)
		}
		_ = sleep.For(ctx, time.Second) // the loop looks at ctx
	}
	return nil
}
