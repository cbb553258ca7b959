package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/storage"
	"golang.org/x/term"
)

// pauses have the ranks of all nodes give up their GPUs together, and take them again, when a command asks for that or
// Slurm suspends the job. Each node has hands: the node daemon of --cuda there or, if all ranks are here, this process.
type pauses struct {
	run     *run
	dir     string     // that commands name; empty: they find none
	local   bool       // this process has the hands
	busy    sync.Mutex // held by who speaks to the ranks
	suspend chan bool
	tasks   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	hands  map[*job.Caller]bool
	nodes  []string // of the newest start; empty: this one
	number int      // of the newest visit
	visit  *visit   // under way
	doors  []pause.Far
}

// visit is a question to all hands.
type visit struct {
	answers chan handsAnswer
	doors   chan *job.Caller
}

type handsAnswer struct {
	from *job.Caller
	pause.Heard
}

// startPauses begins; nil without --cuda. local: no node daemons are the hands.
func (r *run) startPauses(ctx context.Context, local bool) (stop func()) {
	if !r.opt.CUDA {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &pauses{run: r, local: local, hands: map[*job.Caller]bool{}, suspend: make(chan bool, 8)}
	r.pauses = p
	remove := p.publish(ctx)
	p.tasks.Go(func() { p.accept(ctx) })
	p.tasks.Go(func() { p.follow(ctx) })
	if local {
		p.tasks.Go(func() {
			if err := pause.Serve(ctx, r.supervisorValue(), pause.NodeName(), nil); err != nil && ctx.Err() == nil {
				r.log.say("warning: the ranks cannot be paused: %v", err)
			}
		})
	}
	// at a terminal TSTP is the user's, and stops this command
	signals, end := pause.Suspending(r.cfg.Job != nil && !term.IsTerminal(int(os.Stdin.Fd())))
	p.tasks.Go(func() {
		for {
			select {
			case s := <-signals:
				p.suspended(pause.Suspends(s))
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		end()
		remove()
		cancel()
		p.tasks.Wait()
	}
}

// supervisorValue is what config.SupervisorVar says to ranks of no start.
func (r *run) supervisorValue() string {
	_, value, _ := strings.Cut(r.sup.Var(false, false), "=")
	return value
}

// dirForCommands is the directory by which commands find the run: that of its checkpoints, or one of its own of the
// given name, which is made if it is missing.
func (r *run) dirForCommands(name string) (dir string, made bool, err error) {
	dir = r.prog.Global
	if dir == "" || storage.IsObjectStore(dir) {
		dir = r.prog.Local
	}
	if dir == "" {
		dir = name
		err = os.Mkdir(dir, 0o700)
		if made = err == nil; errors.Is(err, os.ErrExist) {
			err = nil
		}
	}
	dir, aerr := filepath.Abs(dir)
	return dir, made, errors.Join(err, aerr)
}

// publish says where commands ask for a pause.
func (p *pauses) publish(ctx context.Context) (remove func()) {
	dir, made, err := p.run.dirForCommands("holdfast-run")
	var unpublish func()
	if err == nil {
		unpublish, err = p.run.sup.Publish(ctx, dir)
	}
	if err != nil {
		p.run.log.say("warning: holdfast pause cannot name this run: %v", err)
		return func() {}
	}
	p.dir = dir
	p.run.log.say("to have all ranks give up their GPUs: holdfast pause %s", dir)
	return func() {
		unpublish()
		if made {
			_ = os.Remove(dir) // it may be in use
		}
	}
}

// begins says which nodes a start is on.
func (p *pauses) begins(nodes []string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes = slices.DeleteFunc(slices.Clone(nodes), func(n string) bool {
		return p.local && (p.run.here(n) || n == "localhost")
	})
}

// accept takes hands, their connections to ranks, and commands.
func (p *pauses) accept(ctx context.Context) {
	for {
		c, err := p.run.sup.AcceptCaller(ctx)
		if err != nil {
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		switch c.Kind {
		case job.CallerDoor:
			p.mu.Lock()
			if v := p.visit; v != nil && c.Visit == p.number {
				v.doors <- c // it has room for all
			} else {
				_ = c.Close() // it is late
			}
			p.mu.Unlock()
		case job.CallerHands:
			p.tasks.Go(func() { defer stop(); p.listen(c) })
		default:
			p.tasks.Go(func() { defer stop(); p.answer(ctx, c) })
		}
	}
}

// listen takes what hands say, until they or their node have ended.
func (p *pauses) listen(c *job.Caller) {
	p.mu.Lock()
	p.hands[c] = true
	p.mu.Unlock()
	for {
		var h pause.Heard
		if err := c.Await(&h); err != nil {
			break
		}
		if h.Suspend != nil {
			p.suspended(*h.Suspend)
			continue
		}
		p.mu.Lock()
		if p.visit != nil && h.Visit == p.number {
			p.visit.answers <- handsAnswer{c, h} // as above
		}
		p.mu.Unlock()
	}
	_ = c.Close() // nothing more comes
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.hands, c)
	for _, d := range p.doors {
		if d.Node == c.Node {
			_ = d.Close() // who waits for its answer need not wait longer
		}
	}
}

// visitTime is how long hands may take to reach their ranks.
const visitTime = 10 * time.Second

// mostRanks of a node can be paused.
const mostRanks = 1024

// reach connects to the ranks of all nodes.
func (p *pauses) reach(ctx context.Context, gpus bool) (*pause.Group, error) {
	p.mu.Lock()
	var hands []*job.Caller
	missing := slices.Clone(p.nodes)
	for c := range p.hands {
		hands = append(hands, c)
		missing = slices.DeleteFunc(missing, func(n string) bool { return n == c.Node })
	}
	p.number++
	v := &visit{make(chan handsAnswer, len(hands)), make(chan *job.Caller, mostRanks*max(len(hands), 1))}
	p.visit = v
	p.mu.Unlock()
	var far []pause.Far
	err := p.ask(ctx, hands, missing, v, gpus, &far)
	p.mu.Lock()
	p.visit = nil
	p.doors = far
	p.mu.Unlock()
	for len(v.doors) > 0 { // of those that came while something else went wrong
		far = append(far, pause.Far{Caller: <-v.doors})
	}
	if err == nil && len(far) == 0 {
		err = errors.New("no rank of this run can be paused: it can once it has used a GPU")
	}
	var g *pause.Group
	if err == nil {
		g, err = pause.Join(far)
	}
	if err != nil {
		for _, d := range far {
			_ = d.Close() // it goes on
		}
	}
	return g, err
}

func (p *pauses) ask(ctx context.Context, hands []*job.Caller, missing []string, v *visit, gpus bool,
	far *[]pause.Far) error {
	if len(missing) > 0 {
		return fmt.Errorf("ranks on %s cannot be reached: no holdfast node of this run answers there; nothing was done",
			strings.Join(missing, ", "))
	}
	machines, wanted := map[string]*pause.Machine{}, 0
	for _, c := range hands {
		if err := c.Say(pause.Visit{Visit: p.number, GPUs: gpus}); err != nil {
			return fmt.Errorf("the holdfast node on %s cannot be asked: %w", c.Node, err)
		}
	}
	late := time.NewTimer(visitTime)
	defer late.Stop()
	for len(machines) < len(hands) || len(*far) < wanted {
		select {
		case a := <-v.answers:
			if a.Error != "" {
				return fmt.Errorf("the holdfast node on %s: %s", a.from.Node, a.Error)
			}
			machines[a.from.Node] = &a.Machine
			wanted += a.Doors
		case d := <-v.doors:
			*far = append(*far, pause.Far{Caller: d})
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			for _, c := range hands {
				if machines[c.Node] == nil {
					return fmt.Errorf("the holdfast node on %s has not answered for %v; nothing was done", c.Node,
						visitTime)
				}
			}
			return fmt.Errorf("%d of %d ranks have answered within %v; nothing was done", len(*far), wanted, visitTime)
		}
	}
	for i, d := range *far {
		(*far)[i].Machine = machines[d.Node]
	}
	slices.SortFunc(*far, func(a, b pause.Far) int {
		return cmp.Or(a.Rank-b.Rank, strings.Compare(a.Node, b.Node), a.PID-b.PID)
	})
	return nil
}

// busyTime is how long one command waits for another.
const busyTime = 20 * time.Second

// do does what is asked with all ranks.
func (p *pauses) do(ctx context.Context, a pause.Ask) (answer pause.Answer) {
	for end := time.Now().Add(busyTime); !p.busy.TryLock(); {
		if time.Now().After(end) || sleep.For(ctx, 20*time.Millisecond) != nil {
			answer.Error = "another command is at work on this run; nothing was done"
			return answer
		}
	}
	defer p.busy.Unlock()
	g, err := p.reach(ctx, a.To != "")
	if err == nil {
		defer g.Close()
		err = g.Do(ctx, a, &answer)
	}
	if err == nil && a.Do != "state" && p.run.events != nil {
		p.run.post(ctx, decide.Paused{Is: a.Do == "pause"})
	}
	p.mu.Lock()
	p.doors = nil
	p.mu.Unlock()
	if err != nil {
		answer.Error = err.Error()
	}
	return answer
}

// answer does what a command asks for; it gives that up when the command ends.
func (p *pauses) answer(ctx context.Context, c *job.Caller) {
	defer c.Close()
	var a pause.Ask
	if err := c.Hear(&a, visitTime); err != nil {
		return // it only wanted to know whether somebody answers
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.tasks.Go(func() {
		_ = c.Await(new(pause.Ask)) // it says nothing more
		cancel()
	})
	answer := p.do(ctx, a)
	if a.Do != "state" {
		p.run.log.say("holdfast %s: %s", a.Do, cmp.Or(answer.Error, answer.String()))
	}
	_ = c.Say(answer) // it may have ended
}

// suspended takes a signal of Slurm's.
func (p *pauses) suspended(is bool) {
	select {
	case p.suspend <- is:
	default: // there are many, and each says the same
	}
}

// Slurm stops all processes two seconds after the first signal. Ranks that have not come to rest by then go on when
// the job does.
const suspendTime = 1500 * time.Millisecond

// resumeTime is how long a job that goes on waits for the GPU memory of the one that ran meanwhile.
const resumeTime = 2 * time.Minute

// follow has the ranks give up their GPUs while the job is suspended.
func (p *pauses) follow(ctx context.Context) {
	suspended, ours := false, false
	for {
		var is bool
		select {
		case is = <-p.suspend:
		case <-ctx.Done():
			return
		}
		if is == suspended {
			continue // another node says so, too
		}
		if suspended = is; is {
			ours = p.giveUp(ctx)
		} else if ours {
			ours = !p.takeAgain(ctx)
		}
	}
}

func (p *pauses) giveUp(ctx context.Context) bool {
	a := p.do(ctx, pause.Ask{Do: "pause", Wait: suspendTime.Seconds()})
	if a.Error != "" {
		p.run.log.say("warning: the job is suspended, and its ranks keep their GPU memory: %s", a.Error)
		return false
	}
	p.run.log.say("the job is suspended: %s", &a)
	return true
}

func (p *pauses) takeAgain(ctx context.Context) bool {
	for end := time.Now().Add(resumeTime); ; {
		a := p.do(ctx, pause.Ask{Do: "resume"})
		if a.Error == "" {
			p.run.log.say("the job goes on: %s", &a)
			return true
		}
		if time.Now().After(end) || sleep.For(ctx, time.Second) != nil {
			p.run.log.say("warning: the job goes on, and its ranks stay paused: %s; holdfast resume %s tries again",
				a.Error, p.dir)
			return false
		}
	}
}

// handsVar is what node daemons need to be hands.
func (r *run) handsVar() []string {
	if !r.opt.CUDA {
		return nil
	}
	return []string{config.HandsVar + "=" + r.supervisorValue()}
}
