package supervise

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Exit codes of Run.
const (
	exitGood    = 0
	exitBad     = 1
	ExitStopped = 75 // EX_TEMPFAIL: the program stopped after a final checkpoint
)

// Options say what is to be started, and how Run watches over it. The flags of holdfast run
// document them.
type Options struct {
	Command        []string // the launcher or program, and its arguments
	Stdout, Stderr io.Writer
	// Self is the path of the program that runs RequeueOrphan as its verb guard, StartRank as
	// start-rank and the copying as flush, on every node.
	Self string

	Spares, MinNodes, MaxRestarts int
	Requeue, JSON                 bool
	Lead, Grace                   time.Duration
	Backoff                       time.Duration
	StartTimeout, EndTimeout      time.Duration
	Stall, WaitNodes, BeginAnew   time.Duration
	Interface, LocalIn            string
}

// Run starts the program, and starts it again until it has ended. It returns the exit code; an
// error is for what keeps it from starting. Signals to this process are for the program, as
// long as it runs.
func Run(ctx context.Context, opt Options) (code int, err error) {
	c, err := parseCommand(opt.Command)
	if err != nil {
		return 0, err
	}
	r := &runner{flags: opt, cmd: c, stdout: opt.Stdout, stderr: opt.Stderr, signals: make(chan os.Signal, 16)}
	signal.Notify(r.signals, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(r.signals)
	// A signal is to be passed on, it does not end this command.
	return r.run(context.WithoutCancel(ctx))
}
