package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// Options describe the program to start, and how Run watches over it. The flags of holdfast run document them.
type Options struct {
	Command        []string // the launcher or program, and its arguments
	Stdout, Stderr io.Writer
	// Self is the path of the program that runs Requeuer as its verb guard, StartRank as
	// start-rank and the copying as flush, on every node.
	Self string

	decide.Limits
	Spares             int
	JSON               bool
	Daemons            bool // start holdfast node on each node
	CUDA               bool // put libholdfast-cuda before the driver of the ranks, so that they can be paused
	Audit              bool // with CUDA: by preload.Audit, for programs that open the driver by a path
	Messages           Messages
	Images             *Images // of a program that takes no checkpoints; nil: it does
	Watch              bool    // only look at the program
	Interface, LocalIn string  // empty Interface: that of the program's settings
}

// run is one run: the machine that decides, and the hands.
type run struct {
	*setup
	machine   *decide.Machine
	events    chan decide.Event
	timer     *time.Timer
	sup       *job.Supervisor
	requeuers *requeuers // nil without
	start     *start     // newest
	pauses    *pauses    // nil without --cuda
	images    *images    // nil without --image
	looks     sync.WaitGroup
	exit      *decide.Exit
}

// Run starts the program, and starts it again until it has ended. It returns the exit code; an error has the reason why
// it did not start. Signals to this process are for the program, as long as it runs.
func Run(ctx context.Context, opt Options) (code int, err error) {
	began := time.Now()
	signals := signalsToPass()
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s, err := prepare(ctx, opt)
	if err != nil {
		cancel()
		return 0, err
	}
	r := &run{setup: s, events: make(chan decide.Event), timer: time.NewTimer(time.Hour)}
	defer r.looks.Wait()
	defer cancel()
	if r.sup, err = job.Supervise(cmp.Or(opt.Interface, s.prog.Interface)); err != nil {
		return 0, err
	}
	defer r.sup.Close()
	if s.cfg.Requeue && s.cfg.Job != nil {
		r.sup.RequeueJob = s.cfg.Job.ID // should the node of this command die
	}
	r.requeuers = r.startRequeuers()
	defer r.requeuers.stop()
	if r.installedOnNodes(ctx) {
		s.cmd.before = []string{opt.Self, "start-rank"} // without it a death before Open is noticed later
	}
	daemons, err := r.startDaemons(ctx)
	if err != nil {
		return 0, err
	}
	defer r.startPauses(ctx, daemons == nil)()
	images, stop, err := r.startImages(ctx)
	if err != nil {
		return 0, err
	}
	defer stop()
	r.images = images
	defer func() { daemons.stop(cmp.Or(s.prog.WriteTimeout, 5*time.Minute) + 10*time.Second) }()
	s.cfg.Began, s.cfg.Announced, s.cfg.Watched = began, s.cmd.before != nil, r.requeuers != nil
	r.machine = decide.New(s.cfg)
	return r.drive(ctx, signals)
}

// signalsToPass takes the signals that are for the program: they do not end this command.
func signalsToPass() chan os.Signal {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	return signals
}

// drive brings events to the machine until it ends the run.
func (r *run) drive(ctx context.Context, signals <-chan os.Signal) (code int, err error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	r.step(ctx, decide.Begin{})
	for r.exit == nil {
		select {
		case ev := <-r.events:
			r.step(ctx, ev)
		case s := <-signals:
			r.step(ctx, decide.Signalled{Signal: s})
		case <-tick.C:
			r.step(ctx, decide.Tick{})
		case <-r.timer.C:
			r.step(ctx, decide.Tick{})
		}
	}
	return r.exit.Code, r.exit.Err
}

func (r *run) step(ctx context.Context, ev decide.Event) {
	for todo := r.machine.Step(time.Now(), ev); len(todo) > 0 && r.exit == nil; {
		a := todo[0]
		todo = todo[1:]
		if answer := r.carryOut(ctx, a); answer != nil {
			todo = append(todo, r.machine.Step(time.Now(), answer)...)
		}
	}
}

// post brings an event to the machine, unless ctx ends first: connections that close because a start is over are no
// news.
func (r *run) post(ctx context.Context, ev decide.Event) {
	if ctx.Err() != nil {
		return
	}
	select {
	case r.events <- ev:
	case <-ctx.Done():
	}
}

// carryOut carries out the machine's decisions. It returns the answer where that comes at once.
func (r *run) carryOut(ctx context.Context, a decide.Action) (answer decide.Event) {
	switch a := a.(type) {
	case decide.Say:
		r.log.say("%s", a.Text)
	case decide.Start:
		line, err := r.launch(ctx, a)
		return decide.Started{Line: line, Err: err}
	case decide.End:
		r.start.end(ctx, a.Step)
	case decide.EndStep:
		endStep(ctx, a.Step)
	case decide.Pass:
		if r.images.pass(a.Signal) {
			break
		}
		_ = r.start.proc.Cmd.Process.Signal(a.Signal) // one that has ended needs none
	case decide.RequestStop:
		r.pauses.stopping()
		if r.images != nil {
			r.start.hand(func() { r.images.stop(r.start) })
			break
		}
		return r.start.request(a.Within)
	case decide.Tell:
		r.pauses.stopping()
		r.start.tell(a.Within)
	case decide.Peek:
		s := r.start
		connects := func(n string) string { return r.probe(s.ctx, n, false, limits{connect: a.Patience}) }
		s.hand(func() { r.post(s.ctx, decide.Peeked{Faults: faultsOf(a.Nodes, connects)}) })
	case decide.Examine:
		r.looks.Go(func() { r.post(ctx, decide.Examined{Faults: r.examine(ctx, a)}) })
	case decide.Exclude:
		r.requeuers.exclude(a.Nodes)
	case decide.AdviseMPI:
		r.adviseMPI()
	case decide.AskJob:
		c := slurm.Client{Timeout: a.Within}
		info, err := c.ShowJob(ctx, r.cfg.Job.ID)
		return decide.JobShown{Info: info, Err: err}
	case decide.Requeue:
		return decide.Requeued{Err: r.client.Requeue(ctx, r.cfg.Job.ID, r.cfg.Job.Restarts)}
	case decide.Salvage:
		e, err := r.salvage(ctx, a)
		return decide.Salvaged{Epoch: e, Err: err}
	case decide.Remember:
		r.save(a.Memory)
	case decide.Timer:
		r.timer.Reset(time.Until(a.At))
	case decide.Exit:
		r.exit = &a
	}
	return nil
}

// log tells the user of decisions. Several goroutines may.
type log struct {
	mu    sync.Mutex // guards w and start
	w     io.Writer
	json  bool
	start int // number of the current start; 0 before the first
}

// Decision is a line of the log of holdfast run --json, which goes to standard error.
type Decision struct {
	Time  time.Time `json:"time"`     // when it was made
	Start int       `json:"start"`    // number of the program's start, from 1; 0: before the first
	Text  string    `json:"decision"` // the decision, for people
}

func (l *log) say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, text := time.Now(), fmt.Sprintf(format, args...)
	if l.json {
		_ = json.NewEncoder(l.w).Encode(Decision{now, l.start, text}) // as the text below
		return
	}
	fmt.Fprintf(l.w, "holdfast run: %s %s\n", now.Format("15:04:05.000"), text)
}

func (l *log) begin(start int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = start
}
