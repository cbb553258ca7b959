package supervise

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// guards are processes on other nodes of the job that put it back into the queue when
// the node of this command dies: Slurm leaves a job with --no-kill as it is then,
// without a script. They are steps of the job, started before the program, so that
// there is no time without them.
type guards struct {
	r      *runner
	most   int // that watch at a time
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	up     chan struct{} // closed when the first one watches
	first  sync.Once

	mu    sync.Mutex // guards the fields below
	posts map[string]*post
	avoid map[string]time.Time // node -> until when it gets none
	told  bool                 // that none could be started
	dead  []string
}

// post is a node with a guard on it.
type post struct {
	proc  *exec.Cmd
	watch bool // it has called
}

// Times of the guards.
const (
	beatEvery    = time.Second
	guardStart   = 30 * time.Second // until a guard that was started must have called
	guardSilent  = 10 * time.Second // after which a guard counts as lost
	guardAgain   = time.Minute      // until a node where one failed gets the next
	guardsAtMost = 2                // they do not die together, as a rule
	firstGuard   = 5 * time.Second  // that the first start of the program waits for one
)

// guard starts the guards of a job that is to be requeued and has another node to put
// them on; nil where there can be none.
func (r *runner) guard() *guards {
	if r.job == nil || !r.flags.Requeue || r.cmd.kind == launchPlain || !slices.ContainsFunc(r.job.Nodes, r.here) {
		return nil // holdfast run on a login node: no node of the job is special
	}
	others := slices.DeleteFunc(slices.Clone(r.job.Nodes), r.here)
	if len(others) == 0 {
		r.say("warning: the job has one node: if that dies, Slurm alone decides whether the job is requeued")
		return nil
	}
	g := &guards{r: r, most: min(guardsAtMost, len(others)), up: make(chan struct{}), posts: map[string]*post{},
		avoid: map[string]time.Time{}}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.wg.Go(g.accept)
	g.wg.Go(func() { g.keep(others) })
	return g
}

// wait lets the first start wait until a guard watches, for a moment.
func (g *guards) wait() {
	if g == nil {
		return
	}
	t := time.NewTimer(firstGuard)
	defer t.Stop()
	select {
	case <-g.up:
	case <-t.C:
		g.r.say("warning: no guard watches yet; if this node dies now, the job has to be requeued by hand")
	}
}

// elsewhere reports whether this command is there on other nodes of the job, too: it can
// stand before the program then. A guard that watches shows it.
func (r *runner) elsewhere(ctx context.Context) bool {
	r.guards.wait()
	switch {
	case r.cmd.kind != launchSrun || r.job == nil || r.cmd.bound:
		return false
	case r.guards != nil:
		return closed(r.guards.up)
	}
	if len(r.nodes) == 0 {
		return false
	}
	quick := slurm.Client{Timeout: firstGuard}
	return quick.RunOn(ctx, r.nodes[len(r.nodes)-1], r.flags.Self, "--version") == nil
}

// without tells which nodes are dead: guards go elsewhere.
func (g *guards) without(dead map[string]string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = nil
	for n := range dead {
		g.dead = append(g.dead, n)
	}
}

// keep starts guards until enough watch, last nodes first: those are spare.
func (g *guards) keep(nodes []string) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		for i := len(nodes) - 1; i >= 0; i-- {
			if g.free(nodes[i]) {
				g.post(nodes[i])
			}
		}
		select {
		case <-tick.C:
		case <-g.ctx.Done():
			return
		}
	}
}

// free reports whether a node is to get a guard.
func (g *guards) free(node string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.posts) < g.most && g.posts[node] == nil && !slices.Contains(g.dead, node) &&
		time.Now().After(g.avoid[node])
}

// post starts a guard on a node.
func (g *guards) post(node string) {
	args := []string{"--overlap", "--mpi=none", "-Q", "-N1", "-n1", "-J", coordinated.GuardStep, "-w", node, "-i",
		"none", g.r.flags.Self, "guard"}
	p := &post{proc: exec.Command("srun", args...)}
	said := &guardWords{w: g.r.stderr}
	p.proc.Stdout, p.proc.Stderr, p.proc.WaitDelay = said, said, time.Second
	p.proc.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.proc.Env = append(slurm.Environ(os.Environ()), g.r.sup.Var(false), "SLURM_RESTART_COUNT="+
		os.Getenv("SLURM_RESTART_COUNT"))
	if err := p.proc.Start(); err != nil {
		g.failed(node, p, err.Error())
		return
	}
	g.mu.Lock()
	g.posts[node] = p
	g.mu.Unlock()
	late := time.AfterFunc(guardStart, func() { g.giveUp(node, p, "it has not called within "+guardStart.String()) })
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

// giveUp ends a guard that does not call, so that another node gets one.
func (g *guards) giveUp(node string, p *post, why string) {
	g.mu.Lock()
	watches := p.watch || g.posts[node] != p
	g.mu.Unlock()
	if watches || g.ctx.Err() != nil {
		return
	}
	_ = syscall.Kill(-p.proc.Process.Pid, syscall.SIGKILL) // gone already is as good
	g.failed(node, p, why)
}

// failed notes that the guard of a node has ended. It is said while none has come up.
func (g *guards) failed(node string, p *post, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.posts[node] == p {
		delete(g.posts, node)
	}
	g.avoid[node] = time.Now().Add(guardAgain)
	if !g.told && !closed(g.up) {
		g.told = true
		g.r.say("warning: no guard can be started on node %s: %s; if the node of this command dies, the job may have "+
			"to be requeued by hand", node, strings.TrimSpace(why))
	}
}

// accept takes the guards that call and lets each hear that this command lives.
func (g *guards) accept() {
	for {
		c, err := g.r.sup.AcceptGuard(g.ctx)
		if err != nil {
			return
		}
		g.mu.Lock()
		if p := g.posts[c.Node]; p != nil {
			p.watch = true
		}
		g.mu.Unlock()
		g.first.Do(func() { close(g.up) })
		g.wg.Go(func() { g.beat(c) })
	}
}

// beat goes on until the guard is lost or this command ends.
func (g *guards) beat(c *coordinated.Guard) {
	lost := make(chan struct{})
	g.wg.Go(func() {
		defer close(lost)
		for c.Answer(guardSilent) == nil {
		}
	})
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		if c.Beat() != nil {
			break
		}
		select {
		case <-tick.C:
			continue
		case <-g.ctx.Done():
			c.Over()
			return
		case <-lost:
		}
		break
	}
	_ = c.Close()
	g.mu.Lock()
	p := g.posts[c.Node]
	if p != nil {
		p.watch = false
	}
	g.mu.Unlock()
	if p != nil { // it may live, and call again
		time.AfterFunc(guardSilent, func() { g.giveUp(c.Node, p, "it has fallen silent") })
	}
}

// stop tells the guards that this command ends in order, and waits until they have gone
// for a moment.
func (g *guards) stop() {
	if g == nil {
		return
	}
	g.cancel()
	gone := make(chan struct{})
	go func() { g.wg.Wait(); close(gone) }()
	t := time.NewTimer(2 * time.Second)
	defer t.Stop()
	select {
	case <-gone:
		return
	case <-t.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.posts {
		_ = syscall.Kill(-p.proc.Process.Pid, syscall.SIGKILL) // gone already is as good
	}
}

// guardWords passes on what guards say, and keeps what srun says about why there is none.
type guardWords struct {
	w io.Writer

	mu   sync.Mutex // guards rest
	rest []byte
}

func (g *guardWords) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte("holdfast guard")) {
		_, _ = g.w.Write(b)
		return len(b), nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rest = append(g.rest, b[:min(len(b), max(0, 1000-len(g.rest)))]...)
	return len(b), nil
}

func (g *guardWords) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(strings.FieldsFunc(string(g.rest), func(r rune) bool { return r == '\n' }), "; ")
}
