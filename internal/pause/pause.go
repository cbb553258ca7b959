package pause

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/shm"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/internal/units"
)

// Result is the outcome for one process.
type Result struct {
	Node    string             `json:"node,omitempty"`    // node of a rank of holdfast run; empty: this one
	Rank    *int               `json:"rank,omitempty"`    // number of the rank, if known
	PID     int                `json:"pid"`               // process ID
	Program string             `json:"program"`           // name of the program
	State   string             `json:"state"`             // running or paused
	Bytes   int64              `json:"bytes"`             // bytes of device memory that it gave up or took again
	Direct  bool               `json:"direct,omitempty"`  // the memory went from GPU to GPU, not through the host
	Seconds map[string]float64 `json:"seconds,omitempty"` // seconds that each step took, by its name
	Error   string             `json:"error,omitempty"`   // why it failed
}

// String names the process.
func (r *Result) String() string {
	process := fmt.Sprintf("process %d (%s)", r.PID, r.Program)
	switch {
	case r.Node == "":
		return process
	case r.Rank == nil:
		return process + " on " + r.Node
	}
	return fmt.Sprintf("rank %d on %s, %s", *r.Rank, r.Node, process)
}

// Group is the processes that are paused and resumed together.
type Group struct {
	doors   []*door
	results []Result
}

// Open connects to processes. Close lets those go on that are in the middle of a pause.
func Open(ctx context.Context, pids []int) (*Group, error) {
	g := &Group{}
	for _, pid := range pids {
		d, err := open(ctx, pid)
		if err != nil {
			g.Close()
			return nil, err
		}
		g.doors = append(g.doors, d)
	}
	g.begin()
	return g, nil
}

func (g *Group) begin() {
	for _, d := range g.doors {
		g.results = append(g.results, Result{Node: d.node, Rank: d.number(), PID: d.PID, Program: d.Program,
			Seconds: map[string]float64{}})
	}
}

// Close ends the connections.
func (g *Group) Close() {
	for _, d := range g.doors {
		_ = d.Close() // those that wait for nothing are as they are
	}
}

// Results returns the results of the processes, in their order.
func (g *Group) Results() []Result { return g.results }

// Moved returns how many bytes of the copy under way are done, and how many there are.
func (g *Group) Moved() (moved, total int64) {
	for _, d := range g.doors {
		moved += d.moved.Load()
		total += d.total.Load()
	}
	return moved, total
}

// all has some of the processes do something at the same time, and notes how long it took. The error is the worst.
func (g *Group) all(which []int, line, what string) error {
	errs := make([]error, len(which))
	var work sync.WaitGroup
	for i, n := range which {
		work.Go(func() {
			began := time.Now()
			_, errs[i] = g.doors[n].ask(line)
			if what != "" {
				g.results[n].Seconds[what] = time.Since(began).Seconds()
			}
		})
	}
	work.Wait()
	for i, n := range which {
		if errs[i] != nil {
			g.results[n].Error = errs[i].Error()
		}
	}
	return errors.Join(errs...)
}

func (g *Group) every() []int {
	which := make([]int, len(g.doors))
	for i := range which {
		which[i] = i
	}
	return which
}

// without returns the numbers of those whose last step did not fail.
func (g *Group) without() (which []int) {
	for i, r := range g.results {
		if r.Error == "" {
			which = append(which, i)
		}
	}
	return which
}

func (g *Group) states() ([]state, error) {
	states := make([]state, len(g.doors))
	for i, d := range g.doors {
		var err error
		if states[i], err = d.state(); err != nil {
			g.results[i].Error = err.Error()
			return nil, err
		}
		g.results[i].State, g.results[i].Bytes = states[i].name, states[i].arena+states[i].other
	}
	return states, nil
}

// look asks for the states, and expects all processes to be in one.
func (g *Group) look(want string) ([]state, error) {
	states, err := g.states()
	if err != nil {
		return nil, err
	}
	for i, s := range states {
		if s.name == "paused" && want != s.name {
			return nil, fmt.Errorf("%s is paused already; holdfast resume has it go on", g.doors[i])
		}
		if s.name != want {
			return nil, fmt.Errorf("%s is %s", g.doors[i], s.name)
		}
	}
	return states, nil
}

// Pause has all processes give up their GPUs, or none. Those that do not come to rest within wait keep the others
// going, and the error names the call and the stream.
func (g *Group) Pause(ctx context.Context, wait time.Duration) error {
	states, err := g.look("running")
	if err != nil {
		return err
	}
	if err := g.pause(ctx, wait, states, false); err != nil {
		return err
	}
	_, err = g.look("paused")
	for _, d := range g.doors { // the last moment: those that do not get it go on by themselves
		if err = errors.Join(err, ctx.Err()); err == nil {
			err = d.SayLine("keep")
		}
	}
	if err != nil {
		return errors.Join(err, g.back())
	}
	return nil
}

// pause is Pause of running processes that go on when the connections end. Where holders have the memory meanwhile,
// nothing goes to the host.
func (g *Group) pause(ctx context.Context, wait time.Duration, states []state, held bool) error {
	every := g.every()
	var err error
	if !held {
		if err := g.enough(states, nil); err != nil {
			return err
		}
		if err := g.all(every, "prepare", ""); err != nil { // the programs run meanwhile
			return err
		}
	}
	if err := g.quiet(ctx, wait); err != nil {
		return err
	}
	prepared := states
	if states, err = g.look("quiet"); err == nil && !held {
		err = g.enough(states, prepared)
	}
	if err == nil {
		err = g.all(every, "save", "copy")
	}
	if err == nil {
		err = ctx.Err() // the last moment: nothing has been given up yet
	}
	if err != nil {
		return errors.Join(err, g.all(g.without(), "open", ""))
	}
	if err := errors.Join(g.all(every, "stop", "release"), ctx.Err()); err != nil {
		return errors.Join(err, g.back())
	}
	for i := range g.results {
		g.results[i].State = "paused"
	}
	return nil
}

// back lets all go on after one could not give up its GPU.
func (g *Group) back() error {
	var errs []error
	for i, d := range g.doors {
		s, err := d.state()
		if err == nil && s.name == "paused" {
			_, err = d.ask("resume")
		} else if err == nil && s.name != "running" {
			_, err = d.ask("open")
		}
		if err == nil {
			g.results[i].State = "running"
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// firstTry is how long processes are held at first for others to come to rest. A kernel of one can wait for another
// process, which is held: so all are let go, and held again at another moment. Every second time they are held for
// twice as long, every fourth time for four times as long, and so on: most moments cost little, and long kernels end.
const firstTry = 100 * time.Millisecond

func (g *Group) quiet(ctx context.Context, wait time.Duration) error {
	began := time.Now()
	for n := uint(1); ; n++ {
		left := wait - time.Since(began)
		try := max(min(firstTry<<bits.TrailingZeros(n), left), 10*time.Millisecond)
		err := g.all(g.every(), fmt.Sprintf("quiet %d", try.Milliseconds()), "wait")
		if err == nil {
			for n := range g.results {
				g.results[n].Seconds["wait"] = time.Since(began).Seconds()
			}
			return ctx.Err()
		}
		again := g.all(g.without(), "open", "")
		if again != nil || errors.Is(err, errRefused) || !errors.Is(err, errBusy) || left <= try || ctx.Err() != nil {
			return errors.Join(err, again, ctx.Err())
		}
		for i := range g.results {
			g.results[i].Error = ""
		}
		if err := sleep.For(ctx, time.Duration(rand.Int64N(int64(try/4)+1))); err != nil {
			return err
		}
	}
}

// enough reports whether the memory of each node, and of control groups of this one, can take the contents of the
// devices there, besides the bytes that are already reserved.
func (g *Group) enough(states, prepared []state) error {
	need, free := map[string]int64{}, map[string]int64{}
	for i, s := range states {
		d := g.doors[i]
		n := s.arena + s.other
		if d.machine != nil {
			need[d.node] += n
			if d.machine.Free > 0 {
				free[d.node] = d.machine.Free // before it was prepared
			}
			continue
		}
		if prepared != nil {
			n -= min(s.arena, prepared[i].arena)
		}
		need[d.node] += n
		if _, available := shm.Machine(); available > 0 {
			free[d.node] = available
		}
		for group, left := range shm.Limits(d.PID) {
			need[group] += n
			free[group] = left
		}
	}
	for _, where := range slices.Sorted(maps.Keys(free)) {
		if n := need[where]; n > 0 && n+n/50 > free[where] {
			return fmt.Errorf("the programs hold %s of device memory, and %s has %s free for the copy", units.Bytes(n),
				cmp.Or(where, "this machine"), units.Bytes(max(free[where], 0)))
		}
	}
	return nil
}

// ErrNotPaused is the error of Resume when no process was paused.
var ErrNotPaused = errors.New("is not paused")

// Resume has all paused processes take GPUs again: their own, or those that to names for them; nil: their own. One that
// runs does so, as when a command was killed at the end of a pause.
func (g *Group) Resume(to *Moves) error {
	states, err := g.states()
	if err != nil {
		return err
	}
	lines, err := g.lines(states, to)
	if err != nil {
		return err
	}
	errs := make([]error, len(lines))
	var work sync.WaitGroup
	none := true
	for i, s := range states {
		if s.name != "paused" {
			continue
		}
		none = false
		work.Go(func() {
			for n, line := range lines[i] {
				g.results[i].Error = ""
				if errs[i] = g.all([]int{i}, line, "resume"); errs[i] == nil || n > 0 {
					return
				}
			}
		})
	}
	work.Wait()
	if none {
		return fmt.Errorf("%s %w", g.doors[0], ErrNotPaused)
	}
	for i := range errs {
		if errs[i] == nil {
			g.results[i].State = "running"
		}
	}
	return errors.Join(errs...)
}

// hold has a process beside each program hold its memory during a move, and copy it from GPU to GPU. It returns false
// if one cannot, or if there is no room for all at the same time: the move goes through the host's memory then.
func (g *Group) hold(states []state, to *Moves) (bool, error) {
	need, free := map[string]int64{}, map[string]int64{}
	for i, s := range states {
		moves, err := to.on(g.doors[i])
		pairs := ""
		if err == nil {
			pairs, err = moves.held(s.devices)
		}
		if err != nil { // before anything is held
			return false, fmt.Errorf("%s: %w", g.doors[i], err)
		}
		if pairs == "" {
			return false, nil
		}
		f, err := g.doors[i].ask("hold " + pairs)
		if err != nil && !errors.Is(err, errRefused) {
			return false, err
		}
		for n := 0; err == nil && n+3 <= len(f); n += 3 {
			var needs, has int64
			if _, err := fmt.Sscan(f[n+1]+" "+f[n+2], &needs, &has); err != nil {
				return false, fmt.Errorf("%s: %w", g.doors[i], err)
			}
			need[f[n]] += needs
			free[f[n]] = has // the last one has seen the contexts of all holders
		}
		if err != nil || len(f) == 0 {
			return false, nil
		}
	}
	for device, n := range need {
		if n > free[device] {
			return false, nil
		}
	}
	return true, nil
}

// lines returns the commands with which each process takes its GPUs again.
func (g *Group) lines(states []state, to *Moves) ([][]string, error) {
	lines := make([][]string, len(states))
	for i, s := range states {
		moves, err := to.on(g.doors[i])
		if err == nil {
			lines[i], err = moves.lines(s.devices)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", g.doors[i], err)
		}
	}
	return lines, nil
}

// Move has all processes give up their GPUs and take others. Those that cannot have the others get their own back.
// Processes that are all paused are resumed there, or stay paused.
func (g *Group) Move(ctx context.Context, wait time.Duration, to *Moves) error {
	if _, err := g.look("paused"); err == nil {
		return g.Resume(to)
	}
	states, err := g.look("running")
	if err != nil {
		return err
	}
	if _, err := g.lines(states, to); err != nil { // before anything is held
		return err
	}
	held, err := g.hold(states, to)
	if err != nil {
		return err
	}
	for i := range g.results {
		g.results[i].Direct = held
	}
	if err := g.pause(ctx, wait, states, held); err != nil {
		return err
	}
	if err := g.Resume(to); err != nil {
		return errors.Join(err, g.back())
	}
	if held {
		for _, d := range g.doors { // the old GPUs are free when the command ends
			_, _ = d.ask("forget") // of a program that has ended since, it is free as well
		}
	}
	return nil
}

// Total returns how long the processes stood still.
func (r *Result) Total() (s float64) {
	for v := range maps.Values(r.Seconds) {
		s += v
	}
	return s
}

// Steps returns the names of the times in Seconds, in their order.
func (r *Result) Steps() []string {
	return slices.DeleteFunc([]string{"wait", "copy", "release", "resume"}, func(s string) bool {
		_, has := r.Seconds[s]
		return !has
	})
}
