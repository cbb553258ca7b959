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
	run    *run
	dir    string        // that commands name; empty: they find none
	local  bool          // this process has the hands
	busy   chan struct{} // has room for the one that speaks to the ranks
	wishes chan wish
	tasks  sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	hands  map[*job.Caller]bool
	nodes  []string // of the newest start; empty: this one
	number int      // of the newest visit
	visit  *visit   // under way
	doors  []pause.Far
	paused bool               // ranks may be
	cancel context.CancelFunc // ends a command's request, while ranks may still go back
}

// wish is a request of another source than a command.
type wish int

const (
	suspended wish = iota // Slurm suspends the job
	continued             // and has it go on
	stopping              // the program is to end, and may have something to do before
)

// visit is a question to all hands.
type visit struct {
	number  int
	hands   []*job.Caller
	missing []string // nodes without
	answers chan handsAnswer
	doors   chan *job.Caller
}

type handsAnswer struct {
	from *job.Caller
	pause.Heard
}

// startPauses begins; nil without --cuda, and with --image, which pauses the program itself. local: no node daemons are
// the hands.
func (r *run) startPauses(ctx context.Context, local bool) (stop func()) {
	if !r.opt.CUDA || r.opt.Images != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &pauses{run: r, local: local, hands: map[*job.Caller]bool{}, busy: make(chan struct{}, 1),
		wishes: make(chan wish, 8)}
	r.pauses = p
	remove := p.publish(ctx)
	p.tasks.Go(func() { p.accept(ctx) })
	p.tasks.Go(func() { p.follow(ctx) })
	if local {
		p.tasks.Go(func() {
			if err := pause.Serve(ctx, r.supervisorValue(), pause.NodeName(), false); err != nil && ctx.Err() == nil {
				r.log.say("warning: the ranks cannot be paused: %v", err)
			}
		})
	}
	// at a terminal TSTP is the user's, and stops this command
	if r.cfg.Job != nil && !term.IsTerminal(int(os.Stdin.Fd())) {
		p.tasks.Go(func() { pause.Suspensions(ctx, p.suspends) })
	}
	return func() {
		remove()
		cancel()
		p.tasks.Wait()
	}
}

// supervisorValue returns the value of config.SupervisorVar for ranks of no start.
func (r *run) supervisorValue() string {
	_, value, _ := strings.Cut(r.sup.Var(false, false), "=")
	return value
}

// dirForCommands returns the directory by which commands find the run: that of its checkpoints, or one of its own of
// the given name, which is made if it is missing.
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

func (p *pauses) begins(nodes []string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = false
	p.nodes = slices.DeleteFunc(slices.Clone(nodes), func(n string) bool {
		return p.local && (p.run.here(n) || n == "localhost")
	})
}

// accept takes hands, their connections to ranks, and commands.
func (p *pauses) accept(ctx context.Context) {
	for {
		c, err := p.run.sup.AcceptCaller(ctx, job.CallerHands)
		if err != nil {
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		switch c.Kind {
		case job.CallerDoor:
			p.mu.Lock()
			if v := p.visit; v != nil && c.Visit == v.number {
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

// listen takes the messages of hands, until they or their node have ended.
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
			p.suspends(*h.Suspend)
			continue
		}
		p.mu.Lock()
		if v := p.visit; v != nil && h.Visit == v.number {
			v.answers <- handsAnswer{c, h} // as above
		}
		p.mu.Unlock()
	}
	_ = c.Close() // nothing more comes
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.hands, c)
	for _, d := range p.doors {
		if d.Node == c.Node {
			_ = d.Close() // a wait for its answer is over
		}
	}
}

// visitTime is how long hands may take to reach their ranks.
const visitTime = 10 * time.Second

// mostRanks of a node can be paused.
const mostRanks = 1024

// reach connects to the ranks of all nodes. Ranks that are to go on do so if others cannot be reached.
func (p *pauses) reach(ctx context.Context, a pause.Ask) (g *pause.Group, missing []string, err error) {
	p.mu.Lock()
	p.number++
	v := &visit{number: p.number, missing: slices.Clone(p.nodes)}
	for c := range p.hands {
		v.hands = append(v.hands, c)
		v.missing = slices.DeleteFunc(v.missing, func(n string) bool { return n == c.Node })
	}
	v.answers = make(chan handsAnswer, len(v.hands))
	v.doors = make(chan *job.Caller, mostRanks*max(len(v.hands), 1))
	p.visit = v
	p.mu.Unlock()
	var far []pause.Far
	if len(v.missing) > 0 && a.Do != "resume" {
		err = fmt.Errorf("%w; nothing was done", unreached(v.missing))
	} else {
		err = v.ask(ctx, a, &far)
	}
	p.mu.Lock()
	p.visit, p.doors = nil, far
	p.mu.Unlock()
	for len(v.doors) > 0 { // of those that came while something else went wrong
		far = append(far, pause.Far{Caller: <-v.doors})
	}
	if err == nil && len(far) == 0 {
		err = errors.New("no rank of this run can be paused: it can once it has used a GPU")
	}
	if err == nil {
		g, err = pause.Join(far)
	}
	if err != nil {
		for _, d := range far {
			_ = d.Close() // it goes on
		}
	}
	return g, v.missing, err
}

func unreached(nodes []string) error {
	return fmt.Errorf("ranks on %s cannot be reached: no holdfast node of this run answers there",
		strings.Join(nodes, ", "))
}

// ask has the hands connect to their ranks.
func (v *visit) ask(ctx context.Context, what pause.Ask, far *[]pause.Far) error {
	machines, wanted := map[string]*pause.Machine{}, 0
	for _, c := range v.hands {
		if err := c.Say(pause.Visit{Visit: v.number, GPUs: what.To != ""}); err != nil {
			return fmt.Errorf("the holdfast node on %s cannot be asked: %w", c.Node, err)
		}
	}
	late := time.NewTimer(visitTime)
	defer late.Stop()
	for len(machines) < len(v.hands) || len(*far) < wanted {
		select {
		case a := <-v.answers:
			if a.Error != "" {
				return fmt.Errorf("the holdfast node on %s: %s", a.from.Node, a.Error)
			}
			if len(a.OpenCL) > 0 && (what.Do == "pause" || what.Do == "migrate") {
				return fmt.Errorf("process %d on %s uses OpenCL: a command there, by this number, pauses it; nothing "+
					"was done", a.OpenCL[0], a.from.Node)
			}
			machines[a.from.Node] = &a.Machine
			wanted += a.Doors
		case d := <-v.doors:
			*far = append(*far, pause.Far{Caller: d})
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			for _, c := range v.hands {
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

func (p *pauses) do(ctx context.Context, a pause.Ask, answer *pause.Answer) error {
	late := time.NewTimer(busyTime)
	defer late.Stop()
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-late.C:
		return errors.New("another command is at work on this run; nothing was done")
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	if a.Do == "pause" || a.Do == "migrate" {
		p.paused, p.cancel = true, cancel
	}
	p.mu.Unlock()
	g, missing, err := p.reach(ctx, a)
	if err == nil {
		err = g.Do(ctx, a, answer)
		g.Close()
	}
	if len(missing) > 0 && a.Do == "resume" {
		text := ""
		if err != nil {
			text = "; " + err.Error()
		}
		err = fmt.Errorf("%w: there, holdfast resume PID%s", unreached(missing), text)
	}
	p.mu.Lock()
	p.doors, p.cancel = nil, nil
	p.paused = p.paused && (err != nil || a.Do == "pause" || a.Do == "state")
	p.mu.Unlock()
	if err == nil && a.Do != "state" && p.run.events != nil {
		p.run.post(ctx, decide.Paused{Is: a.Do == "pause"})
	}
	return err
}

// answer serves a command; it gives up when the command ends.
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
	var answer pause.Answer
	if err := p.do(ctx, a, &answer); err != nil {
		answer.Error = err.Error()
	}
	if a.Do != "state" {
		p.run.log.say("holdfast %s: %s", a.Do, cmp.Or(answer.Error, answer.String()))
	}
	_ = c.Say(answer) // it may have ended
}

func (p *pauses) suspends(is bool) {
	w := continued
	if is {
		w = suspended
	}
	p.want(w)
}

func (p *pauses) want(w wish) {
	select {
	case p.wishes <- w:
	default: // there are many, and each says the same
	}
}

// stopping has ranks that are paused go on, for the program is to end: it could write no checkpoint, nor act on a
// signal that waits for its GPU. Those that are being paused go back.
func (p *pauses) stopping() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		p.cancel()
	}
	if p.paused {
		p.want(stopping)
	}
}

// Slurm stops all processes two seconds after the first signal. Ranks that have not come to rest by then go on when
// the job does.
const suspendTime = 1500 * time.Millisecond

// resumeTime is how long a job that goes on waits for the GPU memory of the one that ran meanwhile.
const resumeTime = 2 * time.Minute

// follow has the ranks give up their GPUs while the job is suspended, and take them again when the program is to end.
func (p *pauses) follow(ctx context.Context) {
	is, ours := false, false
	for {
		var w wish
		select {
		case w = <-p.wishes:
		case <-ctx.Done():
			return
		}
		switch {
		case w == suspended && !is: // else another node says so, too
			ours = p.giveUp(ctx)
		case w == continued && ours, w == stopping:
			ours = !p.takeAgain(ctx)
		}
		if w != stopping {
			is = w == suspended
		}
	}
}

func (p *pauses) giveUp(ctx context.Context) bool {
	var a pause.Answer
	if err := p.do(ctx, pause.Ask{Do: "pause", Wait: suspendTime.Seconds()}, &a); err != nil {
		p.run.log.say("warning: the job is suspended, and its ranks keep their GPU memory: %v", err)
		return false
	}
	p.run.log.say("the job is suspended: %s", &a)
	return true
}

func (p *pauses) takeAgain(ctx context.Context) bool {
	for end := time.Now().Add(resumeTime); ; {
		var a pause.Answer
		err := p.do(ctx, pause.Ask{Do: "resume"}, &a)
		if errors.Is(err, pause.ErrNotPaused) {
			return true // a command was faster
		}
		if err == nil {
			p.run.log.say("the job goes on: %s", &a)
			return true
		}
		if time.Now().After(end) || sleep.For(ctx, time.Second) != nil {
			p.run.log.say("warning: the job goes on, and its ranks stay paused: %v; holdfast resume %s tries again",
				err, p.dir)
			return false
		}
	}
}
