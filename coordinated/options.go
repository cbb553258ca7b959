package coordinated

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Options describe how a job is checkpointed. They must be the same on all ranks, except
// for directories that differ by node. FromEnv fills them from a file and the
// environment.
type Options struct {
	// Job names the job. A directory remembers it and refuses others. Empty means
	// the name of the program.
	Job string
	// Local is a directory on storage of the node, Global one on a file system
	// that all nodes see. At least one is required; with both, epochs are written
	// to Local and copied to Global in the background. Global may also be the URL of an
	// object store, s3://bucket/prefix, found by the usual AWS_* variables; the program
	// imports package storage/s3 for it, and Local is required. "off" leaves a level out. If
	// none is left the program runs without checkpoints: see Off. A directory of this name is
	// "./off".
	Local, Global string
	// Redundancy protects the local shards against the loss of nodes, over the network. "partner:K" keeps K copies of
	// each shard on other nodes. "parity:D+P" keeps Reed-Solomon code over groups of at least D nodes, any P of which
	// may be lost. Empty means none. It needs Local, and lives in directories below it. For parity the program imports
	// package storage/parity.
	Redundancy string
	// Compress compresses data that is copied to Global.
	Compress bool
	// FlushRate limits the copying to Global, in bytes a second for each node; 0
	// means no limit.
	FlushRate int64
	// RedundancyEvery and GlobalEvery choose the epochs that are copied to the level of
	// Redundancy and to Global; zero: every one. The first epoch of a run and a final one are
	// copied to all levels. A level that cannot keep up skips to the newest epoch, so its
	// newest epoch is never older than one flush and one interval of the level. The loss of a
	// node costs the work since the newest epoch at a level beyond Local. With RedundancyEvery
	// and parity an epoch refers only to earlier epochs that parity has, and writes all other
	// data to Local again.
	RedundancyEvery, GlobalEvery Every
	// Fresh starts without looking for an epoch to restore.
	Fresh bool
	// Epoch restores this epoch and no other; 0 means the newest that all ranks
	// can read. Later epochs stay on disk.
	Epoch storage.Epoch

	// Elastic allows the job to continue from an epoch of another number of ranks. Everything must be protected by
	// ProtectGlobal, ProtectChanging, ProtectList, ProtectItems or ProtectReplicated, when the epoch is written and
	// when it is restored, and no message may have been in flight. Otherwise Restore fails with a *CountError that
	// names the obstacle. Without Elastic, Open refuses directories of another number of ranks.
	Elastic bool
	// Quiet is how long a checkpoint may be put off until no message is in flight, so that another number of ranks can
	// restore it; 0: not at all. A cut captures nothing if a message is in a mailbox, or if the program has not
	// completed a receive or a non-blocking collective. The program continues, and the ranks try again at later Points,
	// at growing intervals of up to a second. The first cut after Quiet, counted from the first try, is taken as it is.
	// A final checkpoint is put off for at most a tenth of CutTimeout and a quarter of the time until the process is
	// killed. It is not put off if two Points do not fit into that time. Rank 0's value counts. It has no effect while
	// anything is protected by plain Protect, which ties epochs to their number of ranks anyway.
	Quiet time.Duration

	// CheckpointSignals ask for a checkpoint, StopSignals for a final one. Nil
	// means USR1, and USR2 with TERM; empty means none.
	CheckpointSignals, StopSignals []os.Signal
	// CutTimeout is how long the ranks may take to agree on a cut before the epoch
	// is given up; 0 means 60 s.
	CutTimeout time.Duration
	// WaitTimeout is how long ranks may be deadlocked in an MPI call, in Restore or in Close: they wait for a rank that
	// has closed, or for each other. Then the job ends, as when a rank dies, and the error names each rank with its
	// call and the rank that it waits for. Waiting for a rank that computes is no deadlock and has no limit. If one of
	// the waiting ranks polls, the limit is ten times as long. 0 means 60 s.
	WaitTimeout time.Duration
	// WriteTimeout is how long operations at a level may make no progress before they are given up with a *HungError.
	// So a disk or file server that does not answer does not block later epochs. 0 means 5 min.
	WriteTimeout time.Duration
	// MaxFailed ends the job, as when a rank dies, after this many consecutive epochs that
	// reached no level. 0 means never.
	MaxFailed int
	// Interval is the time from the end of a checkpoint to the next request; 0 means never. MTBF is the mean time
	// between failures of the whole job. Daly's formula then computes the interval from it and the measured cost. It
	// overrides Interval. If both are 0 in Options of FromEnv, and the user has not switched them off, MTBF is 24
	// hours.
	Interval, MTBF time.Duration
	// Deadline is the time at which the job will be ended; zero means unknown. Options of FromEnv ask Slurm for it. A
	// final checkpoint is requested DeadlineLead before it, or when half of the time left at Open is over, whichever
	// is later. If DeadlineLead is 0, Deadline requests none.
	Deadline     time.Time
	DeadlineLead time.Duration
	// Grace is how long after TERM the process is killed; 0 means unknown. The time that is left, of Grace or until
	// Deadline, decides whether a final checkpoint is copied to Global.
	Grace time.Duration
	// Requeue puts the Slurm job back into the queue after a final checkpoint, from
	// within Close, unless it was cancelled or Slurm does so by itself. Slurm then
	// ends all processes of the job. It has no effect under a Supervisor, which
	// requeues the job itself.
	Requeue bool
	// Supervisor is the address and key of the program that started this one and
	// supervises it: the value of SupervisorVar. Empty means none.
	Supervisor string
	// Keep is how many committed epochs to keep at each level; 0 means 2, which is
	// also the least. KeepEvery keeps every epoch at Global whose number it
	// divides as well; 0 means none.
	Keep, KeepEvery int
	// KeepLocal is the number of complete committed epochs to keep at Local and its redundancy, for a small Local; 0
	// means Keep. With Global 1 is enough: the newest is kept until the next one is committed.
	KeepLocal int
	// KeepInterval keeps an epoch at Global each time that it has passed since the last one
	// so kept. Epochs that KeepEvery or KeepInterval keep stay until `holdfast keep --remove`,
	// even those that replace a skipped one whose number KeepEvery divides.
	// Only one of the two may be set.
	KeepInterval time.Duration

	// Sharing is the set of other users that may read the checkpoints: "private" (none;
	// empty is the same), "group" or "world". Only this user can write them.
	Sharing string
	// AllowForeign accepts directories and files that other users own or may write to, and links that they may have
	// made. A user who can write there decides the state that the job restores. A directory of root with the sticky
	// bit, such as /tmp, is always accepted.
	AllowForeign bool

	// MaxPool bounds the memory, in bytes, that captures are copied to; 0 means no
	// bound. State that does not fit is written before the program continues.
	MaxPool int64
	// MaxShadow bounds the device memory, in bytes, to which captures of a protected device are copied. The rest goes
	// to the host while the program waits. 0 leaves it to the device's LimitShadow, by default all that is free; a
	// negative value means none. An allocation of the program that fails gets that memory in any case.
	MaxShadow int64
	// MaxMailbox bounds the bytes of messages that this rank receives for the program at a cut; a cut that needs more
	// fails. 0 means half of the memory that is available then, divided by the ranks of the node, at least 64 MiB.
	MaxMailbox int64
	// NoGPUAware sends large messages of device memory through host memory, even if the MPI library
	// accepts the addresses of a device; see mpiwrap.DeviceMessages.
	NoGPUAware bool
	// CopyWorkers is how many goroutines copy during a capture; 0 means one per
	// CPU of this process.
	CopyWorkers int

	// Device is the selection of the configuration, for gpustate.Open. The library itself opens no device.
	Device gpustate.Select

	// Interface is the network interface ("eth0") or address of the control plane. Empty means the fast network if all
	// nodes have it, else the first interface that is up; the loopback device if all ranks are on one node.
	// PeerTimeout is the silence after which a neighbour in the control tree is lost; 0 means 15 s.
	Interface   string
	PeerTimeout time.Duration
	// Fanout is the number of children in the control tree; 0 means 8.
	Fanout int

	// Events switches the event log of each rank, which holdfast report reads. Empty or "on" means the directory events
	// in Global, or in Local if there is no Global; "off" means none.
	Events string

	// MetricsDir is a directory in which the first rank of each node keeps a file
	// with metrics for Prometheus (that of node_exporter's textfile collector).
	// MetricsListen is an address, such as ":9469", at which the same rank serves
	// them over HTTP as /metrics; without a host it is the loopback one. Empty
	// means none.
	MetricsDir, MetricsListen string

	// OnLost is called on a goroutine of its own when another rank is lost. Nil
	// means: log it and leave with exit code ExitRankLost. The main thread may hang
	// in MPI, so there is nothing to return to. If OnLost returns, calls of this
	// package that wait end with the *LostError.
	OnLost func(*LostError)
	// Logger takes the log; nil means slog.Default.
	Logger *slog.Logger
	// LogLevel is the level from which Logger is given lines, whatever its own is; zero,
	// slog.LevelInfo, leaves that to Logger.
	LogLevel slog.Level

	run      storage.Identity // of the job's own checkpoints, for those with names; zero: to be found
	offs     []string         // the levels that are off, as they were switched off
	bad      error            // error of FromEnv
	fromEnv  bool             // FromEnv made them
	stray    []string         // variables that were meant for Holdfast and are not known
	timed    timingSources    // sources of the times for checkpoints
	askSlurm bool             // for the deadline, if it is not known
	slurm    slurm.Job        // ID is "" outside a job

	program  string // the name of its file, where it is in another process
	makeDirs bool   // those of the levels, below others that are there
}

// fullEvery bounds how long an epoch depends on earlier ones, for a few percent of additional bytes: each epoch whose
// number it divides is written whole at every level. The others refer to earlier ones for unchanged chunks.
const fullEvery = 32

// waitTimeout is WaitTimeout, or its default if that is not valid.
func (o *Options) waitTimeout() time.Duration {
	if o.WaitTimeout <= 0 {
		return time.Minute
	}
	return o.WaitTimeout
}

// validate fills in defaults and returns errors, with the variables that were probably meant.
func (o *Options) validate() error {
	err := o.check()
	if option, ok := errors.AsType[*OptionError](err); ok {
		option.env = o.fromEnv
	}
	if err != nil && len(o.stray) > 0 {
		err = fmt.Errorf("%w; %s", err, strings.Join(o.stray, "; "))
	}
	return err
}

func (o *Options) check() error {
	if o.bad != nil {
		return o.bad
	}
	o.leaveOut("Local", "Global")
	if o.Off() != "" { // the rest is about checkpoints
		o.defaults()
		return nil
	}
	for _, check := range []func() error{o.checkDirs, o.checkParity, o.checkAmounts, o.validateEvery} {
		if err := check(); err != nil {
			return err
		}
	}
	if o.Fresh && o.Epoch != 0 {
		return &OptionError{Name: "Fresh, Epoch", Why: "both are set; either start over or restore an epoch"}
	}
	if o.Events != "" && setEvents(o, o.Events) != nil {
		return &OptionError{Name: "Events", Why: fmt.Sprintf("%q: want on or off", o.Events)}
	}
	if _, err := vfs.ParseSharing(o.Sharing); err != nil {
		return &OptionError{Name: "Sharing", Why: err.Error()}
	}
	o.defaults()
	return nil
}

// checkDirs checks where checkpoints go.
func (o *Options) checkDirs() error {
	if o.Local == "" && o.Global == "" {
		name := "Local, Global"
		if o.fromEnv {
			name = "" // the text has the variables
		}
		return &OptionError{Name: name, Why: "no directory for checkpoints; set HOLDFAST_LOCAL to one on " +
			"the node's own disk, HOLDFAST_GLOBAL to one that all nodes see, or both; HOLDFAST_GLOBAL=off runs the " +
			"program without checkpoints"}
	}
	if o.Local != "" && o.Local == o.Global {
		return &OptionError{Name: "Local, Global", Why: fmt.Sprintf("both are %s; give two directories, or only "+
			"the one that all nodes see", o.Local)}
	}
	for _, dir := range []struct{ option, is string }{{"Local", o.Local}, {"Global", o.Global}} {
		if err := storage.CheckDir(dir.is); err != nil {
			return &OptionError{Name: dir.option, Why: err.Error()}
		}
	}
	if storage.IsObjectStore(o.Global) && o.Local == "" {
		return &OptionError{Name: "Local", Why: fmt.Sprintf("is empty and the checkpoints go to the object store "+
			"%s; set HOLDFAST_LOCAL to a directory on the node's own disk: epochs are written there first, and the "+
			"files by which tools find the job lie there", o.Global)}
	}
	return nil
}

// checkParity refuses parity in a program that cannot compute it.
func (o *Options) checkParity() error {
	red, err := o.redundancy()
	if err != nil || red.level != storage.LevelParity {
		return err
	}
	if err := storage.CheckParity(); err != nil {
		return &OptionError{Name: "Redundancy", Why: fmt.Sprintf("%s: %v", o.Redundancy, err), cause: err}
	}
	return nil
}

// checkAmounts checks numbers and times, and fills in those whose default is not zero.
func (o *Options) checkAmounts() error {
	o.Keep = cmp.Or(o.Keep, 2)
	if o.Keep < 2 {
		return &OptionError{Name: "Keep",
			Why: fmt.Sprintf("%d is too few: the epoch before the newest is the one that is left when a job dies "+
				"while writing; use 2 or more", o.Keep)}
	}
	if o.KeepLocal < 0 || o.KeepLocal == 1 && o.Global == "" || o.KeepLocal > 0 && o.Local == "" {
		return &OptionError{Name: "KeepLocal", Why: fmt.Sprintf("%d: it needs Local, and without Global 2 or more",
			o.KeepLocal)}
	}
	o.CutTimeout = cmp.Or(o.CutTimeout, time.Minute)
	o.WaitTimeout = cmp.Or(o.WaitTimeout, o.waitTimeout())
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 5*time.Minute)
	if o.Quiet < 0 || o.WriteTimeout < 0 || o.WaitTimeout < 0 || o.CutTimeout < 0 || o.Interval < 0 || o.MTBF < 0 ||
		o.DeadlineLead < 0 || o.Grace < 0 || o.MaxPool < 0 || o.MaxMailbox < 0 || o.FlushRate < 0 || o.KeepEvery < 0 ||
		o.KeepInterval < 0 ||
		o.MaxFailed < 0 || o.CopyWorkers < 0 || o.Fanout < 0 {
		return &OptionError{Name: "Quiet, WriteTimeout, WaitTimeout, CutTimeout, Interval, MTBF, DeadlineLead, " +
			"Grace, MaxPool, MaxMailbox, FlushRate, KeepEvery, MaxFailed, CopyWorkers, Fanout",
			Why: "a negative value means nothing; use 0 for the default"}
	}
	if o.KeepEvery > 0 && o.KeepInterval > 0 {
		return &OptionError{Name: "KeepEvery, KeepInterval", Why: "both are set; give a count or a duration"}
	}
	return nil
}

func (o *Options) validateEvery() error {
	red, err := o.redundancy()
	if err != nil {
		return err
	}
	for _, l := range []struct {
		name   string
		every  Every
		use    bool
		remedy string
	}{
		{"RedundancyEvery", o.RedundancyEvery, red.level != "", "HOLDFAST_REDUNDANCY"},
		{"GlobalEvery", o.GlobalEvery, o.Local != "" && o.Global != "", "both HOLDFAST_LOCAL and HOLDFAST_GLOBAL"},
	} {
		switch {
		case l.every.Epochs < 0 || l.every.Time < 0 || l.every.Epochs > 0 && l.every.Time > 0:
			return &OptionError{Name: l.name, Why: fmt.Sprintf("%d epochs and %v: want a count or a duration, not "+
				"below 0", l.every.Epochs, l.every.Time)}
		case l.every.Thins() && !l.use:
			return &OptionError{Name: l.name, Why: "the level is not in use, or the only one; set " + l.remedy +
				", or leave it out"}
		}
	}
	return nil
}

func (o *Options) defaults() {
	if o.CheckpointSignals == nil {
		o.CheckpointSignals = []os.Signal{syscall.SIGUSR1}
	}
	if o.StopSignals == nil {
		o.StopSignals = []os.Signal{syscall.SIGUSR2, syscall.SIGTERM}
	}
	o.CopyWorkers = cmp.Or(o.CopyWorkers, runtime.GOMAXPROCS(0))
	o.Fanout = cmp.Or(o.Fanout, 8)
	o.Logger = o.Log()
	if o.OnLost == nil {
		log := o.Logger
		o.OnLost = func(e *LostError) {
			log.Error("holdfast: leaving", "error", e.Error(), "exit", ExitRankLost)
			os.Exit(ExitRankLost)
		}
	}
}

// OptionError names a bad option.
type OptionError struct {
	Name string
	Why  string

	env   bool  // the options are those of FromEnv
	cause error // of another package; may be nil
}

// Error names the option and the mistake in its value. It names variables if the options come from variables.
func (e *OptionError) Error() string {
	switch {
	case !e.env:
		return fmt.Sprintf("option %s: %s", e.Name, e.Why)
	case e.Name == "":
		return e.Why
	}
	return optionName.ReplaceAllStringFunc(e.Name, func(name string) string {
		return "HOLDFAST_" + strings.ToUpper(capital.ReplaceAllString(name, "${1}_$2"))
	}) + ": " + e.Why
}

// Unwrap returns the cause that makes the value impossible in this program, such as storage.ErrNoParity, or nil.
func (e *OptionError) Unwrap() error { return e.cause }

// How the name of an option becomes that of its variable.
var (
	optionName = regexp.MustCompile(`\w+`)
	capital    = regexp.MustCompile(`([a-z])([A-Z])`)
)
