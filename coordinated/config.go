package coordinated

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// SupervisorVar is the variable in which a Supervisor tells the job how to reach
// it; Options.Supervisor takes its value.
const SupervisorVar = config.SupervisorVar

// Config is the configuration of a job: for each key the value in force and its source. A program's flag wins over a
// variable, a variable over the file, the file over the default. All calls of Config are local. It belongs to one
// goroutine at a time.
type Config struct {
	File string // that was read, empty if there is none

	keys *config.Config[Options]
}

// ConfigValue describes the value in force for a key. It has the Group, the Key and its variable, Env. Value is as
// written, empty for the default. Source is "default", a file, a variable or a flag. Default, Allowed and Help are
// texts, and Error has the mistake, if any. Explain writes all of it.
type ConfigValue = config.Value

// FromEnv returns the options that holdfast.yaml in the working directory (or the file that HOLDFAST_CONFIG names) and
// HOLDFAST_* variables give; variables win. Open reports errors in them on every rank. `holdfast config` lists the
// keys, their variables, and the values in force.
func FromEnv() Options { return ReadConfig("").Options() }

// ReadConfig reads a configuration file and the environment. An empty name stands for the file that HOLDFAST_CONFIG
// names, else for holdfast.yaml, which may be missing. Errors are kept for Err and Options.
func ReadConfig(file string) *Config {
	keys := config.Read(settings, file)
	return &Config{File: keys.File, keys: keys}
}

// Set sets a key to a text as in a file. source names its origin, such as a flag, for messages. Set returns an error
// for an unknown key. Err returns the error for a value that is not allowed.
func (c *Config) Set(key, text, source string) error { return c.keys.Set(key, text, source) }

// Values returns the value in force of every key.
func (c *Config) Values() []ConfigValue { return c.keys.Values() }

// Err returns the mistakes: a file that cannot be read, unknown keys, values that are not allowed. Each error names the
// key and the values that are allowed.
func (c *Config) Err() error { return c.keys.Err() }

// Stray names the variables of an environment that look like Holdfast's and mean nothing to it, each with the variable
// that was probably meant. It also names keys of the file that were settings of holdfast gpud.
func (c *Config) Stray(environ []string) []string { return c.keys.Stray(environ) }

// Check returns the mistakes that Open finds before it touches any directory: Err, and values that contradict each
// other.
func (c *Config) Check() error {
	o := c.Options()
	return o.validate()
}

// Options returns the options. Open returns the error that Err has.
func (c *Config) Options() Options {
	o := Options{fromEnv: true, stray: c.Stray(os.Environ())}
	if o.bad = c.Err(); o.bad != nil {
		return o
	}
	c.keys.Apply(&o)
	o.leaveOut(c.off("local"), c.off("global"))
	o.noteTiming(c.Values())
	o.askSlurm, o.Supervisor = true, os.Getenv(SupervisorVar)
	if end, err := strconv.ParseInt(os.Getenv("SLURM_JOB_END_TIME"), 10, 64); err == nil {
		o.Deadline = time.Unix(end, 0)
	}
	o.slurm, _, _ = slurm.FromEnv(os.Getenv) // it leaves out unreadable values
	o.Job = cmp.Or(o.Job, os.Getenv("SLURM_JOB_NAME"), filepath.Base(os.Args[0]))
	return o
}

// settings are the keys of the configuration. A further key is a further row, and nothing else: docs/SETTINGS.md is
// made from them (go test ./cmd/holdfast -run SettingsPage -args -update).
var settings = slices.Concat(levelKeys, momentKeys, amountKeys, deviceKeys, rareKeys)

var levelKeys = config.In("where checkpoints are kept",
	config.Key("job", "SLURM_JOB_NAME, or the program's name", "name of the job that the checkpoints belong to",
		config.Text("a name", func(o *Options) *string { return &o.Job })),
	config.Key("global", "none", "directory that all nodes see, or s3://bucket/prefix; it must exist. off: none; "+
		"without local no checkpoints are taken",
		config.Text("a directory, s3://bucket/prefix, or off", func(o *Options) *string { return &o.Global })),
	config.Key("local", "none", "directory on each node's own disk; it must exist. off: none; without global no "+
		"checkpoints are taken",
		config.Text("a directory, or off", func(o *Options) *string { return &o.Local })),
	config.Key("redundancy", "none", "copies or parity of local shards on other nodes; for parity Go programs "+
		"import storage/parity",
		config.Checked("partner:K or parity:D+P, or none", setRedundancy)))

var momentKeys = config.In("when they are taken, and which one is restored",
	config.Key("interval", "by mtbf", "time from the end of one checkpoint to the next. off: none by the clock, even "+
		"with mtbf",
		config.DurationOrOff(func(o *Options) *time.Duration { return &o.Interval })),
	config.Key("mtbf", "24h", "mean time between failures of the job. Holdfast computes the interval from it and "+
		"the measured cost (Daly). A time that is set overrides interval; off: no interval from it; the default never "+
		"gives less than about 7 minutes",
		config.DurationOrOff(func(o *Options) *time.Duration { return &o.MTBF })),
	config.Key("deadline_lead", "none", "time before the end of the Slurm job at which a final checkpoint is "+
		"taken; at most half of the time left at Open",
		config.Duration(func(o *Options) *time.Duration { return &o.DeadlineLead })),
	config.Key("grace", "none; with holdfast run Slurm's KillWait", "time from TERM until the job is killed",
		config.Duration(func(o *Options) *time.Duration { return &o.Grace })),
	config.Key("requeue", "false", "put the Slurm job back into the queue after a final checkpoint",
		config.Bool(func(o *Options) *bool { return &o.Requeue })),
	config.Key("signals.checkpoint", "USR1", "signals to any rank that ask for a checkpoint",
		config.Signals(func(o *Options) *[]os.Signal { return &o.CheckpointSignals })),
	config.Key("signals.stop", "USR2,TERM", "signals to any rank that ask for a final checkpoint",
		config.Signals(func(o *Options) *[]os.Signal { return &o.StopSignals })),
	config.Key("redundancy_every", "every epoch", "epochs, or time, between two that get copies or parity",
		everyKind(func(o *Options) *Every { return &o.RedundancyEvery })),
	config.Key("global_every", "every epoch", "epochs, or time, between two that are copied to global; a final one "+
		"always is",
		everyKind(func(o *Options) *Every { return &o.GlobalEvery })),
	config.Key("quiet", "0s", "longest time to wait until no message is in flight, so that other numbers of ranks can "+
		"restore the checkpoint",
		config.Duration(func(o *Options) *time.Duration { return &o.Quiet })),
	config.Key("fresh", "false", "start from the beginning: restore nothing",
		config.Bool(func(o *Options) *bool { return &o.Fresh })),
	config.Key("epoch", "the newest", "epoch to restore; the newest is the newest that all ranks can read",
		config.Count(func(o *Options) *storage.Epoch { return &o.Epoch })))

var amountKeys = config.In("how much is kept and used",
	config.Key("keep", "2", "committed epochs to keep at each level, at least 2",
		config.Checked("a whole number of 2 or more", setKeep)),
	config.Key("keep_local", "as keep", "committed epochs to keep at local and its redundancy, each complete; 1 is "+
		"enough with global", config.Count(func(o *Options) *int { return &o.KeepLocal })),
	config.Key("keep_every", "none", "epochs, or time, after which one more epoch at global is kept until holdfast "+
		"keep --remove",
		config.Checked("a number of epochs such as 100, or a duration such as 6h", setKeepEvery)),
	config.Key("compress", "false", "compress data that is copied to global",
		config.Bool(func(o *Options) *bool { return &o.Compress })),
	config.Key("flush_rate", "no limit", "limit for copying to global, in bytes per second and node",
		config.Bytes(func(o *Options) *int64 { return &o.FlushRate })),
	config.Key("max_pool", "no limit", "limit for the host memory of captures, in bytes a rank",
		config.Bytes(func(o *Options) *int64 { return &o.MaxPool })),
	config.Key("max_shadow", "all that is free, half of it in C", "limit for the device memory of captures, in "+
		"bytes a device; none: copy to the host while the program waits",
		config.Checked("a size such as 8GiB, or none", setMaxShadow)),
	config.Key("max_mailbox", "half of the available memory", "limit for messages in flight at a cut, in bytes a "+
		"rank; a cut that needs more fails",
		config.Bytes(func(o *Options) *int64 { return &o.MaxMailbox })))

var deviceKeys = config.In("devices, and the server that lends them, holdfast gpud",
	config.Key("device", "the best there is", "device of the program, here or of a holdfast gpud",
		config.Checked("a selection such as cuda:0, pocl, or remote=node7:7478,cuda:0", setDevice)),
	config.Key("gpud.key", "~/.config/holdfast/gpud.key", "key file of holdfast gpud and its clients; holdfast "+
		"migrate and balance use gpud-move.key beside it",
		config.Checked("a file", setGpudKey)))

var rareKeys = config.In("rarely needed",
	config.Key("log", "info", "least severe lines in the log",
		config.Checked("debug, info, warn or error", setLogLevel)),
	config.Key("sharing", "private", "users that may read the checkpoints; only the owner can write them",
		config.Checked("private, group or world", setSharing)),
	config.Key("allow_foreign", "false", "accept directories and files that other users own, can write to, or "+
		"can have linked",
		config.Bool(func(o *Options) *bool { return &o.AllowForeign })),
	config.Key("gpu_aware", "auto", "pass device memory to MPI directly. auto: if a trial shows that MPI supports it",
		config.Checked("auto or off", setGPUAware)),
	config.Key("events", "on", "write an event log for holdfast report beside the checkpoints",
		config.Checked("on or off", setEvents)),
	config.Key("metrics", "none", "for Prometheus: the first rank of each node writes a file in this absolute "+
		"directory, or serves HTTP at this address, such as :9469; without a host it is loopback",
		config.Checked("an absolute directory, or an address such as :9469", setMetrics)),
	config.Key("control.interface", "automatic", "interface or address for TCP between the ranks. automatic: the "+
		"fast network if all nodes have it (InfiniBand, Omni-Path, Slingshot), else the first interface that is up",
		config.Text("an interface or address", func(o *Options) *string { return &o.Interface })),
	config.Key("control.peer_timeout", "15s", "time of silence after which a rank counts as lost; a rank whose "+
		"connection breaks is lost at once",
		config.Positive(func(o *Options) *time.Duration { return &o.PeerTimeout })),
	config.Key("cut_timeout", "60s", "time in which the ranks must agree on a cut; else the request is dropped",
		config.Positive(func(o *Options) *time.Duration { return &o.CutTimeout })),
	config.Key("wait_timeout", "60s", "time for which ranks wait for a closed one, or for each other, before the job "+
		"ends",
		config.Positive(func(o *Options) *time.Duration { return &o.WaitTimeout })),
	config.Key("write_timeout", "5m", "time without progress after which writing an epoch at a level fails",
		config.Positive(func(o *Options) *time.Duration { return &o.WriteTimeout })),
	config.Key("max_failed", "never", "consecutive checkpoints that reached no level after which the job ends",
		config.Count(func(o *Options) *int { return &o.MaxFailed })))

func setEvents(o *Options, text string) error {
	if text != "on" && text != eventsOff {
		return config.ErrNotUnderstood
	}
	o.Events = text
	return nil
}

func setMetrics(o *Options, text string) error {
	if filepath.IsAbs(text) {
		o.MetricsDir = text
		return nil
	}
	o.MetricsListen = text
	if _, _, err := net.SplitHostPort(text); err != nil {
		return config.ErrNotUnderstood
	}
	return nil
}

func setMaxShadow(o *Options, text string) error {
	if text == "none" {
		o.MaxShadow = -1
		return nil
	}
	return config.Bytes(func(o *Options) *int64 { return &o.MaxShadow }).Set(o, text)
}

func setGPUAware(o *Options, text string) error {
	o.NoGPUAware = text == "off"
	if !o.NoGPUAware && text != "auto" {
		return config.ErrNotUnderstood
	}
	return nil
}

// everyKind returns a count of epochs or a time between them.
func everyKind(at func(*Options) *Every) config.Kind[Options] {
	return config.Checked("a number of epochs such as 4, or a duration such as 10m",
		func(o *Options, s string) (err error) {
			*at(o), err = persist.ParseEvery(s)
			return err
		})
}

func setDevice(o *Options, s string) (err error) {
	o.Device, err = gpustate.ParseSelect(s)
	return err
}

// setGpudKey comes after setDevice: a selection's own key= wins.
func setGpudKey(o *Options, s string) error {
	o.Device.KeyFile = cmp.Or(o.Device.KeyFile, s)
	return nil
}

func setKeep(o *Options, s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return config.ErrNotUnderstood
	}
	if n < 2 {
		return errors.New("too few: a job that dies while writing restarts from the epoch before the newest")
	}
	o.Keep = n
	return nil
}

func setKeepEvery(o *Options, s string) error {
	v, err := persist.ParseEvery(s)
	o.KeepEvery, o.KeepInterval = v.Epochs, v.Time
	return err
}

func setSharing(o *Options, s string) error {
	o.Sharing = s
	if _, err := vfs.ParseSharing(s); err != nil {
		return config.ErrNotUnderstood
	}
	return nil
}

func setRedundancy(o *Options, s string) error {
	if s == "none" {
		s = ""
	}
	o.Redundancy = s
	if _, err := (&Options{Redundancy: s, Local: "any"}).redundancy(); err != nil {
		return config.ErrNotUnderstood
	}
	return nil
}

// Log returns the log of a Checkpointer with these options: Logger or slog.Default, by LogLevel.
func (o *Options) Log() *slog.Logger {
	log := cmp.Or(o.Logger, slog.Default())
	if o.LogLevel == slog.LevelInfo {
		return log
	}
	return slog.New(fromLevel{log.Handler(), o.LogLevel})
}

// fromLevel is a Handler that takes only the lines of a level and above.
type fromLevel struct {
	slog.Handler
	level slog.Level
}

func (h fromLevel) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h fromLevel) WithAttrs(a []slog.Attr) slog.Handler {
	return fromLevel{h.Handler.WithAttrs(a), h.level}
}

func (h fromLevel) WithGroup(name string) slog.Handler {
	return fromLevel{h.Handler.WithGroup(name), h.level}
}

func setLogLevel(o *Options, text string) error {
	if o.LogLevel.UnmarshalText([]byte(text)) != nil {
		return config.ErrNotUnderstood
	}
	return nil
}

// levelOff as Local or Global leaves that level out.
const levelOff = "off"

// leaveOut removes the levels that are off; local and global name the settings that say so.
func (o *Options) leaveOut(local, global string) {
	for _, l := range []struct {
		dir *string
		by  string
	}{{&o.Local, local}, {&o.Global, global}} {
		if *l.dir != levelOff {
			continue
		}
		*l.dir = ""
		if !strings.HasSuffix(l.by, levelOff) {
			l.by += "=" + levelOff
		}
		o.offs = append(o.offs, l.by)
	}
}

// Off returns the setting by which the program runs without checkpoints, such as "HOLDFAST_GLOBAL=off"; empty: it runs
// with them. It runs without where one of Local and Global is "off" and no directory is given.
func (o *Options) Off() string {
	p := *o
	p.leaveOut("Local", "Global")
	if p.Local != "" || p.Global != "" {
		return ""
	}
	return strings.Join(p.offs, ", ")
}

// off names the setting that switches a key off, if one does.
func (c *Config) off(key string) string {
	for _, v := range c.keys.Values() {
		if v.Key == key && v.Source != v.Env {
			return v.Source + ": " + key + ": " + levelOff
		} else if v.Key == key {
			return v.Env
		}
	}
	return key
}
