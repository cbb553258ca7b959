package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// prepare reads the job and checks the flags against it.
func (r *runner) prepare(ctx context.Context) error {
	job, ok, err := slurm.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	if ok {
		r.job = &job
		r.recall()
		if err := r.readJob(ctx); err != nil {
			return err
		}
	} else if r.flags.Requeue {
		return fmt.Errorf("--requeue: this is no Slurm job; start it from a batch script, or leave the flag out")
	}
	if r.job == nil && r.cmd.kind == launchSrun && r.flags.Spares > 0 {
		return fmt.Errorf("--spares: srun outside a job gets nodes of its own; use it inside sbatch or salloc")
	}
	for _, h := range r.cmd.hosts {
		if !slices.Contains(r.nodes, h.name) {
			r.nodes = append(r.nodes, h.name)
		}
	}
	return r.size()
}

// readJob asks Slurm what concerns checkpoints. What it does not tell is a
// warning: the program can run without.
func (r *runner) readJob(ctx context.Context) error {
	if r.cmd.kind == launchSrun || len(r.cmd.hosts) == 0 && r.cmd.kind != launchPlain {
		r.nodes = slices.Clone(r.job.Nodes)
	}
	var err error
	if r.conf, err = r.client.Config(ctx); err != nil {
		if errors.Is(err, slurm.ErrNoSlurm) {
			return fmt.Errorf("this is Slurm job %s, but %w; put them into PATH", r.job.ID, err)
		}
		r.say("warning: %v", err)
	}
	if r.addrs, err = r.client.NodeAddrs(ctx, r.job.Nodes); err != nil {
		r.say("warning: %v", err)
	}
	info, err := r.client.ShowJob(ctx, r.job.ID)
	if err != nil { // a controller with too much to do, as when many jobs start at once
		r.say("warning: %v", err)
		info.Partition, info.MayRequeue = r.job.Partition, true
		info.End, _ = r.client.Deadline(ctx, r.job.ID) // from the environment, or a second try
	}
	if r.cmd.kind == launchSrun && len(r.nodes) == 0 { // SLURM_JOB_NODELIST is missing
		r.nodes = info.Nodes
	}
	r.deadline = info.End
	if r.graceTime, err = r.client.GraceTime(ctx, info.Partition); err != nil {
		r.say("warning: %v", err)
	}
	if r.flags.Requeue && !info.MayRequeue {
		r.say("warning: --requeue: job %s was submitted with --no-requeue, or the site does not requeue; it will end "+
			"after the final checkpoint and has to be submitted again", r.job.ID)
	}
	r.readWarning(ctx)
	return nil
}

// size says how many nodes and ranks the program gets.
func (r *runner) size() error {
	have := len(r.nodes)
	r.fewerNodes(have)
	f := r.flags
	if have == 0 {
		if f.Spares > 0 {
			return fmt.Errorf("--spares %d: there are no nodes to keep: no Slurm job, and neither --host nor "+
				"--hostfile is given", f.Spares)
		}
		return nil
	}
	if f.Spares < 0 || f.Spares >= have {
		return fmt.Errorf("--spares %d: the job has %d nodes; ask for more nodes or keep fewer", f.Spares, have)
	}
	if f.MinNodes > have { // a requeue would change nothing
		return fmt.Errorf("--min-nodes %d: the job has %d nodes; ask for more nodes, or for fewer at least", f.MinNodes,
			have)
	}
	r.width = have - f.Spares
	if n := r.cmd.nodes; n > 0 {
		if n > have-f.Spares && !r.fewer {
			return fmt.Errorf("%d nodes for the program and %d spare ones are more than the %d of the job", n, f.Spares,
				have)
		}
		r.width = min(n, have-f.Spares)
	}
	if r.cmd.kind != launchSrun {
		return nil
	}
	each := r.cmd.each
	if each == 0 {
		each, _ = strconv.Atoi(os.Getenv("SLURM_NTASKS_PER_NODE")) // none is 0
	}
	switch {
	case r.cmd.tasks > 0:
		r.tasks = r.cmd.tasks
	case r.fewer && r.mem.Tasks > 0:
		r.tasks = r.mem.Tasks // a checkpoint is restored on as many ranks as took it
	case each > 0:
		r.tasks = each * r.width
	case r.job.Tasks > 0 && r.cmd.nodes == 0 && f.Spares == 0:
		r.tasks = r.job.Tasks
	default:
		r.tasks = r.width
	}
	if !r.fewer {
		r.mem.Width, r.mem.Tasks = r.width, r.tasks
	}
	if each := r.cmd.each; each > 0 && !r.cmd.layout && r.tasks%r.width != 0 {
		r.say("warning: %d ranks do not lie evenly on %d nodes, and srun takes --ntasks-per-node %d for the most "+
			"that a node may get; give it -N %d, or -n %d, where parity or equal nodes matter",
			r.tasks, r.width, each, (r.tasks+each-1)/each, r.width*each)
	}
	if r.cmd.plugin == "none" && r.tasks > 1 {
		return fmt.Errorf("srun --mpi=none starts no MPI: every rank would be alone; use --mpi=pmix for Open MPI, " +
			"--mpi=pmi2 for MPICH")
	}
	return nil
}

// fewerNodes adapts a job that comes back from the queue with fewer nodes than it had: Slurm takes
// a dead node out of a job with --no-kill and requeues it with the rest. Spare nodes go first.
func (r *runner) fewerNodes(have int) {
	if have == 0 || r.job == nil || r.job.Restarts == 0 {
		return
	}
	want := cmp.Or(r.cmd.nodes, r.mem.Width, 1)
	if want+r.flags.Spares <= have {
		return
	}
	r.fewer = true
	r.flags.Spares = max(have-want, 0)
	r.say("the job has come back with %d nodes: %d for the program, %d spare", have, min(want, have), r.flags.Spares)
}

// asGiven reports whether this start is by the user's own command line.
func (r *runner) asGiven() bool { return r.starts == 1 && r.flags.Spares == 0 && !r.fewer }

// line is the command line for the given nodes. The first start of a command
// that needs no change is the user's own.
func (r *runner) line(nodes, env []string) []string {
	var vars []string
	for _, v := range env {
		if name, _, ok := strings.Cut(v, "="); ok && strings.HasPrefix(name, "HOLDFAST_") &&
			!slices.Contains(vars, name) {
			vars = append(vars, name)
		}
	}

	switch {
	case r.cmd.kind == launchSrun && r.job != nil:
		if r.asGiven() || len(nodes) == 0 {
			return r.cmd.asItIs()
		}
		cpus := 0
		if len(r.job.CPUsPerNode) > 0 {
			cpus = slices.Min(r.job.CPUsPerNode)
		}
		var out []string
		for _, n := range r.nodes {
			if _, unfit := r.unfit[n]; unfit || r.isDead(n) {
				out = append(out, n)
			}
		}
		return r.cmd.onNodes(nodes, out, r.tasks, cpus)
	case r.cmd.kind == launchSrun, r.cmd.kind == launchPlain:
		return append(append([]string{r.cmd.name}, r.cmd.opts...), r.cmd.prog...)
	case r.asGiven() && len(r.cmd.hosts) == 0:
		return r.cmd.onHosts(nil, vars)
	}
	return r.cmd.onHosts(nodes, vars)
}

// TooFewNodesError says that not enough nodes are alive.
type TooFewNodesError struct {
	Alive, Least int
	Dead         map[string]string
}

func (e *TooFewNodesError) Error() string {
	var why []string
	for n, w := range e.Dead {
		why = append(why, n+" "+w)
	}
	slices.Sort(why)
	return fmt.Sprintf("%d nodes are left, --min-nodes is %d (%s)", e.Alive, e.Least, strings.Join(why, "; "))
}

// choose picks the nodes of the next start: those of the last one that are
// alive, whose disks hold shards, then spare ones; in the order of the
// allocation.
func (r *runner) choose() ([]string, error) {
	if len(r.nodes) == 0 {
		return nil, nil
	}
	first := r.used
	if r.lacks {
		first = r.homes
	}
	var alive, spare []string
	for _, n := range r.nodes {
		if _, unfit := r.unfit[n]; unfit || r.isDead(n) {
			continue
		}
		if r.starts == 0 || slices.Contains(first, n) {
			alive = append(alive, n)
		} else {
			spare = append(spare, n)
		}
	}
	if n := len(alive) + len(spare); n < max(r.flags.MinNodes, 1) {
		return nil, &TooFewNodesError{n, r.flags.MinNodes, r.dead}
	}
	picked := append(alive, spare...)
	picked = picked[:min(r.width, len(picked))]
	var ordered []string
	for _, n := range r.nodes {
		if slices.Contains(picked, n) {
			ordered = append(ordered, n)
		}
	}
	if r.starts > 0 && len(picked) < r.width {
		r.say("only %d of %d nodes are left: more ranks on each", len(picked), r.width)
	}
	return ordered, nil
}

// examine finds out which nodes are dead after a failed run; true means that at
// least one is that was not before. Suspects must show that they are well, and so
// must nodes that were dead before. A suspect that fell silent is not even asked
// while there are others to take its place: a frozen node takes seconds to give
// itself away.
func (r *runner) examine(ctx context.Context, suspects []string, silent bool, lim limits) bool {
	if len(r.nodes) == 0 {
		return false
	}
	held := r.nodes
	states := map[string]slurm.NodeState{}
	if r.job != nil {
		quick := slurm.Client{Timeout: 2 * time.Second}
		var wg sync.WaitGroup
		wg.Go(func() {
			if info, err := quick.ShowJob(ctx, r.job.ID); err == nil && len(info.Nodes) > 0 {
				held = info.Nodes
			}
		})
		wg.Go(func() {
			list, err := quick.NodeStates(ctx, r.nodes)
			if err != nil {
				r.say("warning: %v", err)
			}
			for _, s := range list {
				states[s.Name] = s
			}
		})
		wg.Wait()
	}
	why := make([]string, len(r.nodes))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i, n := range r.nodes {
		s, known := states[n]
		switch {
		case !slices.Contains(held, n):
			why[i] = "is no longer part of the job"
			continue
		case known && !s.Usable():
			why[i] = strings.TrimSpace("is " + s.State + " " + s.Reason)
			if !s.Responding {
				why[i] = "does not answer Slurm"
			}
			continue
		}
		_, before := r.dead[n]
		suspect := slices.Contains(suspects, n)
		if suspect && silent && !before && !r.here(n) && len(r.nodes)-len(r.dead)-len(suspects) >= r.width {
			why[i] = "has fallen silent"
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			why[i] = r.probe(ctx, n, suspect || before, lim)
		})
	}
	wg.Wait()
	r.acquit(ctx, why, lim)
	fresh := false
	for i, n := range r.nodes {
		_, before := r.dead[n]
		switch {
		case why[i] != "" && !before:
			fresh = true
			r.say("node %s is not used any more: it %s", n, why[i])
			r.dead[n] = why[i]
		case why[i] == "" && before:
			r.say("node %s is back", n)
			delete(r.dead, n)
		}
	}
	r.guards.without(r.dead)
	return fresh
}

// limits of a probe: of the connection, and of a step that does nothing.
type limits struct{ connect, step time.Duration }

var (
	afterDeath    = limits{3 * time.Second, 3 * time.Second} // something is wrong
	whileStarting = limits{3 * time.Second, 6 * time.Second} // it may only be slow
)

// dialTry is how long one connection is waited for: TCP itself tries again after a second,
// then after three and seven, which a link that comes back need not wait for.
const dialTry = time.Second

// dialPatiently connects, again and again for a while: a link that is away for a moment is
// no dead node. A machine that refuses is there.
func dialPatiently(ctx context.Context, addr string, patience time.Duration) (net.Conn, error) {
	for end := time.Now().Add(patience); ; {
		begin := time.Now()
		d := net.Dialer{Timeout: dialTry}
		c, err := d.DialContext(ctx, "tcp", addr)
		var unknown *net.DNSError
		if err == nil || errors.As(err, &unknown) || errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(end) {
			return c, err
		}
		if sleep.For(ctx, dialTry/4-time.Since(begin)) != nil { // an error that came at once
			return nil, err
		}
	}
}

// startsNothing stands before what is wrong with a node on which a step fails.
const startsNothing = "starts nothing"

// acquit clears nodes on which no step starts if none does on a node that lives
// either, that of this command for one: then it is Slurm, not they.
func (r *runner) acquit(ctx context.Context, why []string, lim limits) {
	blamed := func(w string) bool { return strings.HasPrefix(w, startsNothing) }
	if !slices.ContainsFunc(why, blamed) {
		return
	}
	at := slices.IndexFunc(r.nodes, r.here)
	if at < 0 {
		at = slices.Index(why, "")
	}
	if at >= 0 {
		quick := slurm.Client{Timeout: lim.step}
		if err := quick.Probe(ctx, r.nodes[at]); err == nil {
			return
		}
	}
	r.say("Slurm starts nothing on any node, so none is blamed for it")
	for i := range why {
		if blamed(why[i]) && !r.isDead(r.nodes[i]) {
			why[i] = ""
		}
	}
}

func (r *runner) isDead(node string) bool {
	_, dead := r.dead[node]
	return dead
}

// here reports whether this command runs on a node.
func (r *runner) here(node string) bool {
	name, err := os.Hostname()
	return err == nil && name == node || r.job != nil && node == r.job.NodeName
}

// probe says what is wrong with a node, "" if nothing is. Connecting tells a dead
// node from a live one at once; a frozen one still accepts connections, so that a
// suspect must also run something.
func (r *runner) probe(ctx context.Context, node string, suspect bool, lim limits) string {
	if r.here(node) {
		return ""
	}
	addr := r.addrs[node]
	if addr == "" {
		addr = node
	}
	port := 22 // whether anything listens is no matter
	if r.job != nil && r.conf.SlurmdPort > 0 {
		port = r.conf.SlurmdPort
	}
	c, err := dialPatiently(ctx, net.JoinHostPort(addr, strconv.Itoa(port)), lim.connect)
	var unknown *net.DNSError
	switch {
	case err == nil:
		_ = c.Close()
	case errors.As(err, &unknown):
		return ""
	case errors.Is(err, syscall.ECONNREFUSED) && r.job == nil:
		return ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return "runs no slurmd"
	default:
		return "does not answer"
	}
	if !suspect || r.job == nil {
		return ""
	}
	quick := slurm.Client{Timeout: lim.step}
	if err := quick.Probe(ctx, node); err != nil {
		if errors.Is(err, slurm.ErrTimeout) {
			return fmt.Sprintf("%s within %v", startsNothing, lim.step)
		}
		return startsNothing + ": " + err.Error()
	}
	return ""
}
