package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/observe"
	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/daly"
	"github.com/holdfast-hpc/holdfast/internal/image"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/storage"
	"golang.org/x/sys/unix"
)

// Images say how images are taken of a program that takes no checkpoints.
type Images struct {
	Dir    string        // of the images
	Wait   time.Duration // for commands of the program, before each
	Append bool          // output files that have grown since the image stay so, as standard error does; else not
	image.Starter
}

// images stand for the ranks of a program that takes no checkpoints: they report to the machine like rank 0.
type images struct {
	run     *run
	opt     *Images
	signals []os.Signal     // that ask for an image
	wanted  chan chan error // one is asked for; its error is wanted unless that is nil
	untimed bool            // the settings switch images by the clock off
	tell    account

	warn   sync.Once
	busy   sync.Mutex  // held while an image is taken
	pid    int         // of the program
	family map[int]int // descriptors of the processes of the program that were seen, itself among them
	report job.Report
}

// startImages prepares, and answers holdfast status and request until stop is called; nil without --image.
func (r *run) startImages(ctx context.Context) (m *images, stop func(), err error) {
	if r.opt.Images == nil {
		return nil, func() {}, nil
	}
	m = &images{run: r, opt: r.opt.Images, signals: r.prog.CheckpointSignals, wanted: make(chan chan error, 1),
		family: map[int]int{}}
	if m.signals == nil {
		m.signals = []os.Signal{syscall.SIGUSR1}
	}
	for _, v := range coordinated.ReadConfig("").Values() {
		m.untimed = m.untimed || (v.Key == "interval" || v.Key == "mtbf") && v.Value != ""
	}
	if err := os.Mkdir(m.opt.Dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, err
	}
	m.tell = account{dir: m.opt.Dir, name: filepath.Base(r.opt.Command[0]), host: host, timing: r.prog.Timing(),
		began: time.Now()}
	stop, err = observe.Serve(ctx, m.opt.Dir, cmp.Or(r.opt.Interface, r.prog.Interface), slog.Default(),
		observe.Answers{Job: image.JobOf(m.tell.name), Status: m.tell.status, Ranks: m.tell.ranks, Request: m.request})
	return m, stop, err
}

// pause returns the time to the next image after one that cost this, and the setting; 0: there is none.
func (m *images) pause(cost time.Duration) (d time.Duration, by string) {
	const usualMTBF, leastCost = 24 * time.Hour, time.Second // as for checkpoints
	switch o := &m.run.prog; {
	case o.MTBF > 0:
		return daly.Interval(cost, o.MTBF), "mtbf"
	case o.Interval > 0 || m.untimed:
		return o.Interval, "interval"
	}
	return daly.Interval(max(cost, leastCost), usualMTBF), "mtbf"
}

// start starts the program from its newest image, or from its beginning if there is none.
func (m *images) start(ctx context.Context, cmd *exec.Cmd, a decide.Start) (proc *child.Process, err error) {
	m.report = job.Report{Job: filepath.Base(cmd.Path), Nodes: []string{m.tell.host}, Taken: m.taken(), Ready: true,
		Points: 1}
	if err := m.tell.open(ctx); err != nil {
		m.run.log.say("warning: holdfast report will not have this start: %v", err)
	}
	o := &m.run.prog
	anew := a.Fresh || o.Fresh && !a.Continues
	if !anew {
		began := time.Now()
		m.tell.turn("restoring")
		end := m.tell.log.Span(events.Event{Name: events.Restore})
		var p image.Restored
		ro := image.RestoreOptions{Dir: m.opt.Dir, Truncate: !m.opt.Append, Append: m.opt.Append,
			Starter: m.opt.Starter,
			Command: m.run.opt.Command, Stay: true, Own: os.Stderr,
			Older: func(err error) { m.run.log.say("%v: trying the one before", err) }}
		if !a.Continues {
			ro.Epoch = o.Epoch
		}
		for _, e := range a.Skip {
			ro.Skip = append(ro.Skip, storage.Epoch(e))
		}
		if p, err = image.Restore(ctx, ro); err == nil {
			proc, m.pid = p.Guard, p.PID
			for _, text := range p.Changed {
				m.run.log.say("warning: %s", text)
			}
			m.report.Restored = &job.RestoredStatus{Epoch: uint64(p.Epoch), Level: storage.LevelGlobal,
				Seconds: time.Since(began).Seconds()}
			m.tell.restored(p.Epoch)
		}
		if anew = errors.Is(err, image.ErrNone); anew {
			end(events.Event{}, nil)
		} else {
			end(events.Event{Epoch: uint64(p.Epoch), Level: storage.LevelGlobal}, err)
		}
	}
	if anew {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: image.Outside(0)}
		image.LeaveNumbers()
		if proc, err = child.Start(cmd); err == nil {
			m.pid = proc.PID()
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", cmd.Path, err), m.tell.close(false))
	}
	m.tell.turn("running")
	if process, err := unix.PidfdOpen(m.pid, 0); err == nil { // else it has ended
		m.family[m.pid] = process
	}
	m.learn()
	return proc, nil
}

func (m *images) taken() string {
	by := "as images, and at the end"
	for _, s := range m.signals {
		by += fmt.Sprintf(", by %v", s)
	}
	if d, _ := m.pause(time.Second); d > 0 {
		by += fmt.Sprintf(", by the clock: the first after %v", d.Round(time.Second))
	}
	return by
}

// pass takes a signal that asks for an image; others are the program's.
func (m *images) pass(s syscall.Signal) bool {
	if m == nil || !slices.Contains(m.signals, os.Signal(s)) {
		return false
	}
	select {
	case m.wanted <- nil:
	default: // one is about to be taken
	}
	return true
}

// follow takes the images of a start when they are due.
func (m *images) follow(s *start) {
	m.run.post(s.ctx, decide.Reported{Report: m.report})
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	next := func(cost time.Duration) {
		d, by := m.pause(cost)
		if due.Stop(); d > 0 {
			due.Reset(d)
		}
		m.tell.next(d, by)
	}
	next(time.Second)
	for cost := time.Second; ; next(cost) {
		var by string
		var answer chan error
		for by == "" {
			select {
			case <-s.ctx.Done():
				return
			case <-alive.C:
				m.tell.log.Emit(events.Event{Name: events.Alive})
			case <-due.C:
				by = "the clock"
			case answer = <-m.wanted:
				by = "request"
			}
		}
		m.tell.log.Emit(events.Event{Name: events.Request, What: by})
		t, err := m.take(s, false)
		if err == nil {
			cost = t.Stopped
		}
		if answer != nil {
			answer <- err
		}
	}
}

// stop takes the final image, with which the program ends.
func (m *images) stop(s *start) {
	_, err := m.take(s, true)
	m.run.post(s.ctx, decide.Asked{OK: err == nil})
}

func (m *images) take(s *start, final bool) (t image.Taken, err error) {
	m.busy.Lock()
	defer m.busy.Unlock()
	o := &m.run.prog
	began := time.Now()
	m.tell.turn("capturing")
	t, err = image.Take(s.ctx, m.pid, image.Options{Dir: m.opt.Dir, Keep: cmp.Or(o.Keep, 2), KeepEvery: o.KeepEvery,
		KeepInterval: o.KeepInterval, Kill: final, Wait: m.opt.Wait, CRIU: m.opt.CRIU, Self: m.opt.Self,
		Command: m.run.opt.Command})
	if err == nil || s.ctx.Err() == nil {
		m.tell.taken(t, began, final, err)
	}
	if err != nil && s.ctx.Err() == nil {
		m.report.Failing = err.Error()
		m.run.log.say("no image was taken: %v", err)
		m.run.post(s.ctx, decide.Reported{Report: m.report})
	}
	if err != nil {
		return t, err
	}
	m.learn()
	if len(t.Lacks) > 0 {
		m.warn.Do(func() { m.run.log.say("warning: %s", strings.Join(t.Lacks, "; ")) })
	}
	e := uint64(t.Epoch)
	m.report.Failing, m.report.Committed = "", map[string]uint64{storage.LevelGlobal: e}
	m.report.Newest = &job.EpochStatus{Epoch: e, BlockedSeconds: t.Stopped.Seconds(),
		DurableSeconds: map[string]float64{storage.LevelGlobal: time.Since(began).Seconds()}}
	if m.report.Points++; final {
		m.report.Stopped = e
	}
	m.run.log.say("image %d: the program stood still for %.3f s", e, t.Stopped.Seconds())
	m.run.post(s.ctx, decide.Reported{Report: m.report})
	return t, nil
}

// learn notes the processes of the program, so that they can be killed when the first one has ended.
func (m *images) learn() {
	first, seen := m.family[m.pid]
	if !seen {
		return
	}
	opened := map[int]int{}
	for _, pid := range child.Tree(m.pid) {
		if _, known := m.family[pid]; known {
			continue
		}
		if process, err := unix.PidfdOpen(pid, 0); err == nil { // else it has ended
			opened[pid] = process
		}
	}
	tree := child.Tree(m.pid) // a number that is still there was not another process's
	alive := unix.PidfdSendSignal(first, 0, nil, 0) == nil
	for pid, process := range opened {
		if alive && slices.Contains(tree, pid) {
			m.family[pid] = process
		} else {
			_ = unix.Close(process)
		}
	}
}

// ended is called when the program has ended, or the process that passes its exit code on. It kills those of its
// processes that are left, and waits for an image that is being taken.
func (m *images) ended(code int) {
	if m == nil {
		return
	}
	m.busy.Lock()
	defer m.busy.Unlock()
	if err := m.tell.close(code == 0 || m.report.Stopped > 0); err != nil {
		m.run.log.say("warning: the end of this start is missing in holdfast report: %v", err)
	}
	m.learn()
	for _, process := range m.family {
		_ = unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0) // as a rule it has ended
		_ = unix.Close(process)
	}
	m.family = map[int]int{}
}
