package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/observe"
	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/preload"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
)

// Watch starts a program once, whether it takes checkpoints or not. It reports the messages that its ranks wait for,
// names deadlocks, and lists at the end the obstacles to a checkpoint. It returns the program's own exit code; an error
// has the reason why it did not start. Signals to this process are for the program.
func Watch(ctx context.Context, opt Options) (code int, err error) {
	signals := signalsToPass()
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	opt.Messages, opt.Daemons = MessagesOn, true
	s, err := prepare(ctx, opt)
	if err != nil {
		return 0, err
	}
	if !strings.Contains(s.libraries, preload.Layer) {
		return 0, errors.New("--watch: nothing can be seen of this program's MPI, for the reason above")
	}
	w := &watched{run: &run{setup: s}, job: observe.New(cmp.Or(s.prog.WaitTimeout, watchPatience))}
	if w.sup, err = job.Supervise(cmp.Or(opt.Interface, s.prog.Interface)); err != nil {
		return 0, err
	}
	defer w.sup.Close()
	defer w.serve(ctx)()
	if w.installedOnNodes(ctx) {
		s.cmd.before = []string{opt.Self, "start-rank"}
	}
	daemons, err := w.startDaemons(ctx)
	if err != nil {
		return 0, err
	}
	defer daemons.stop(10 * time.Second)
	defer w.startPauses(ctx, daemons == nil)()
	return w.start(ctx, signals)
}

// watchPatience is how long ranks may wait for each other before that is called a deadlock, where messages are in
// flight that might end it.
const watchPatience = 30 * time.Second

// watched is a run that is only looked at.
type watched struct {
	*run
	job *observe.Job
}

// serve lets holdfast status ask, in the directory that the program would write checkpoints to, or in one of its own.
func (w *watched) serve(ctx context.Context) (stop func()) {
	dir, _, err := w.dirForCommands("holdfast-watch")
	if err == nil {
		stop, err = w.job.Serve(ctx, dir, cmp.Or(w.opt.Interface, w.prog.Interface), slog.Default())
	}
	if err != nil {
		w.log.say("warning: holdfast status cannot ask: %v", err)
		return func() {}
	}
	w.log.say("to see what the ranks wait for: holdfast status %s", dir)
	return stop
}

// start starts the program, looks at it, and returns how it ended.
func (w *watched) start(ctx context.Context, signals <-chan os.Signal) (code int, err error) {
	cmd := w.command(decide.Start{Number: 1}, config.WatchVar+"="+w.supervisorValue())
	w.pauses.begins(w.cfg.Nodes)
	proc, err := child.Start(cmd)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", cmd.Args[0], err)
	}
	w.log.say("watching: %s", strings.Join(cmd.Args, " "))
	hear, cancel := context.WithCancel(ctx)
	var hearing sync.WaitGroup
	hearing.Go(func() { w.hear(hear, &hearing) })
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	collected := time.Now()
	for over := false; !over; {
		select {
		case <-proc.Ended:
			over = true
		case s := <-signals:
			if s != syscall.SIGUSR1 && s != syscall.SIGUSR2 {
				w.pauses.stopping()
			}
			_ = cmd.Process.Signal(s) // one that has ended needs none
		case now := <-tick.C:
			if text := w.job.Look(now); text != "" {
				w.log.say("DEADLOCK: %s", text)
			}
			if !w.cmd.kind.collects() || !noneLeft(proc.PID()) {
				collected = now
			} else if now.Sub(collected) >= decide.CollectTime {
				w.log.say("ending the launcher: %s", decide.Uncollected)
				collected = now
				proc.Signal(syscall.SIGKILL)
			}
		}
	}
	time.AfterFunc(time.Second, cancel) // a daemon that has died says nothing
	hearing.Wait()
	w.conclude()
	return proc.Code(), nil
}

// hear takes the daemons' messages, until ctx ends.
func (w *watched) hear(ctx context.Context, hearing *sync.WaitGroup) {
	for {
		from, err := w.sup.AcceptCaller(ctx, job.CallerWatcher)
		if err != nil {
			return
		}
		hearing.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = from.Close() })
			defer stop()
			for {
				var ranks []observe.Rank
				if err := from.Hear(&ranks, time.Hour); err != nil {
					_ = from.Close() // its ranks have ended, or it has
					return
				}
				w.job.Take(ranks)
			}
		})
	}
}

func (w *watched) conclude() {
	sum := w.job.Summary()
	if w.opt.JSON {
		_ = json.NewEncoder(w.opt.Stderr).Encode(sum) // as below
		return
	}
	for line := range strings.Lines(sum.String()) {
		w.log.say("%s", strings.TrimSuffix(line, "\n"))
	}
}
