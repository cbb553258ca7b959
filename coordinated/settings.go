package coordinated

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// A setting is a key of the configuration. A further one is a further row of
// settings, and nothing else.
type setting struct {
	key     string
	normal  string // what holds when nothing is set, for people
	allowed string
	help    string
	set     func(o *Options, text string) error // from the text of a file or variable
}

// env is the variable of a key.
func (s setting) env() string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

// What values are called.
const (
	wantDir      = "a directory"
	wantBool     = "true or false"
	wantDuration = "a duration such as 90s, 10m or 24h"
	wantPositive = "a duration of more than 0, such as 90s"
	wantCount    = "a whole number from 0 on"
	wantBytes    = "a number of bytes such as 500M or 2GiB"
	wantSignals  = "a list of USR1, USR2, TERM, HUP, INT, URG, WINCH, XCPU, or none"
)

var settings = []setting{
	{"job", "SLURM_JOB_NAME, else the program's name", "a name", "name of the job that the checkpoints belong to",
		text(func(o *Options) *string { return &o.Job })},
	{"local", "none", wantDir, "directory on the node's own disk",
		text(func(o *Options) *string { return &o.Local })},
	{"global", "none", wantDir, "directory that all nodes see",
		text(func(o *Options) *string { return &o.Global })},
	{"redundancy", "none", "partner:K or parity:D+P", "copies or parity of the local shards on other nodes",
		setRedundancy},
	{"compress", "false", wantBool, "compress what goes to global",
		truth(func(o *Options) *bool { return &o.Compress })},
	{"flush_rate", "no limit", wantBytes, "bytes a second for copying to global",
		amount(func(o *Options) *int64 { return &o.FlushRate })},
	{"fresh", "false", wantBool, "do not restore",
		truth(func(o *Options) *bool { return &o.Fresh })},
	{"epoch", "the newest that all ranks can read", wantCount, "epoch to restore", setEpoch},
	{"interval", "none", wantDuration, "time from the end of a checkpoint to the next",
		duration(func(o *Options) *time.Duration { return &o.Interval })},
	{"mtbf", "none", wantDuration, "mean time between failures of the job: chooses the interval (Daly)",
		duration(func(o *Options) *time.Duration { return &o.MTBF })},
	{"deadline_lead", "none", wantDuration, "final checkpoint so long before the end of the Slurm job",
		duration(func(o *Options) *time.Duration { return &o.DeadlineLead })},
	{"grace", "none", wantDuration, "time from TERM to the kill",
		duration(func(o *Options) *time.Duration { return &o.Grace })},
	{"requeue", "false", wantBool, "put the Slurm job back into the queue after a final checkpoint",
		truth(func(o *Options) *bool { return &o.Requeue })},
	{"cut_timeout", "60s", wantPositive, "how long the ranks may take to agree on a cut",
		positive(func(o *Options) *time.Duration { return &o.CutTimeout })},
	{"wait_timeout", "60s", wantPositive, "how long ranks may wait for one that has closed, or for each other, " +
		"before the job ends",
		positive(func(o *Options) *time.Duration { return &o.WaitTimeout })},
	{"write_timeout", "5m", wantPositive, "how long a level may take nothing before an epoch is given up there",
		positive(func(o *Options) *time.Duration { return &o.WriteTimeout })},
	{"max_failed", "never", wantCount, "end the job after so many checkpoints in a row that came to no level",
		number(func(o *Options) *int { return &o.MaxFailed })},
	{"keep", "2", "a whole number from 2 on", "committed epochs to keep at each level", setKeep},
	{"keep_every", "none", wantCount, "keep every n-th epoch at global as well",
		number(func(o *Options) *int { return &o.KeepEvery })},
	{"max_pool", "no limit", wantBytes, "memory for captures",
		amount(func(o *Options) *int64 { return &o.MaxPool })},
	{"sharing", "private", "private, group or world", "who besides this user may read the checkpoints; nobody else " +
		"may ever write them", setSharing},
	{"allow_foreign", "false", wantBool, "use directories and files of other users, those that others may write to, " +
		"and links that others may have made",
		truth(func(o *Options) *bool { return &o.AllowForeign })},
	{"max_mailbox", "half of what is available", wantBytes, "memory for messages in flight at a cut",
		amount(func(o *Options) *int64 { return &o.MaxMailbox })},
	{"events", "on", "on, off or a directory", "event log for holdfast report; on is beside the checkpoints",
		text(func(o *Options) *string { return &o.Events })},
	{"metrics.dir", "none", "a directory", "where a file with Prometheus metrics is kept, by the first rank of " +
		"each node",
		text(func(o *Options) *string { return &o.MetricsDir })},
	{"metrics.listen", "none", "an address, such as :9469", "where the same rank serves them over HTTP; loopback if " +
		"no host is named",
		text(func(o *Options) *string { return &o.MetricsListen })},
	{"signals.checkpoint", "USR1", wantSignals, "signals that ask for a checkpoint",
		signals(func(o *Options) *[]os.Signal { return &o.CheckpointSignals })},
	{"signals.stop", "USR2,TERM", wantSignals, "signals that ask for a final checkpoint",
		signals(func(o *Options) *[]os.Signal { return &o.StopSignals })},
	{"control.interface", "the first that is up and not loopback", "an interface or address",
		"where the control plane listens",
		text(func(o *Options) *string { return &o.Interface })},
	{"control.heartbeat", "250ms", wantPositive, "how often neighbours say that they are alive",
		positive(func(o *Options) *time.Duration { return &o.Heartbeat })},
	{"control.peer_timeout", "1.5s", wantPositive, "silence after which a rank counts as lost",
		positive(func(o *Options) *time.Duration { return &o.PeerTimeout })},
	{"device", "the best there is", "a selection such as cuda:0, pocl, or remote=node7:7478,cuda:0",
		"device of the program, on this machine or of a holdfast gpud", setDevice},
	{"gpud.key", "holdfast/gpud.key in the configuration directory", "a file", "key of holdfast gpud and its clients",
		setGpudKey},
	{"gpud.move_key", "gpud-move.key beside gpud.key", "a file", "key that holdfast migrate, balance and gpud " +
		"--evacuate prove", checked},
	{"gpud.listen", "a Unix socket of the user", "a list of unix:PATH, HOST:PORT, INTERFACE:PORT",
		"where holdfast gpud listens", checked},
	{"gpud.device", "all", "a list of selections", "devices that holdfast gpud offers", checked},
	{"gpud.quota", "no limit", wantBytes, "device memory of one program of holdfast gpud", checked},
	{"gpud.max_clients", "256", wantCount, "programs of holdfast gpud at a time", checked},
	{"gpud.peer", "none", "a list of addresses", "servers that holdfast gpud moves its programs to when it leaves",
		checked},
	{"gpud.grace", "20s", wantDuration, "how long holdfast gpud waits for programs to end on TERM", checked},
	{"gpud.patience", "30s", wantDuration, "time for a program of holdfast gpud to read what it is sent", checked},
	{"gpud.silence", "15s", wantDuration, "time for a program's node to acknowledge what holdfast gpud sends", checked},
	{"gpud.frozen", "never", wantDuration, "holdfast gpud drops a program that is stopped for so long", checked},
	{"gpud.user", "the server's", "a user", "user that processes of holdfast gpud for programs run as", checked},
	{"gpud.worker_dir", "none", "a list of directories", "what these processes may use beside devices, libraries " +
		"and caches", checked},
	{"gpud.metrics", "none", "an address, such as 127.0.0.1:9470", "where holdfast gpud serves metrics over HTTP",
		checked},
}

// checked takes any text: holdfast gpud reads the key and says what is wrong
// with it.
func checked(*Options, string) error { return nil }

func setDevice(o *Options, s string) (err error) {
	o.Device, err = gpustate.ParseSelect(s)
	return err
}

// setGpudKey comes after setDevice: a selection's own key= wins.
func setGpudKey(o *Options, s string) error {
	o.Device.KeyFile = cmp.Or(o.Device.KeyFile, s)
	return nil
}

func text(at func(*Options) *string) func(*Options, string) error {
	return func(o *Options, s string) error { *at(o) = s; return nil }
}

func truth(at func(*Options) *bool) func(*Options, string) error {
	return func(o *Options, s string) (err error) {
		if *at(o), err = strconv.ParseBool(s); err != nil {
			return errors.New("not understood")
		}
		return nil
	}
}

func duration(at func(*Options) *time.Duration) func(*Options, string) error {
	return func(o *Options, s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			if _, err := strconv.ParseFloat(s, 64); err == nil {
				return errors.New("no unit")
			}
			return errors.New("not understood")
		}
		if d < 0 {
			return errors.New("negative")
		}
		*at(o) = d
		return nil
	}
}

// positive is a duration that cannot be switched off: 0 would be the default.
func positive(at func(*Options) *time.Duration) func(*Options, string) error {
	return func(o *Options, s string) error {
		if err := duration(at)(o, s); err != nil {
			return err
		}
		if *at(o) == 0 {
			return errors.New("zero")
		}
		return nil
	}
}

func number(at func(*Options) *int) func(*Options, string) error {
	return func(o *Options, s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return errors.New("not understood")
		}
		*at(o) = n
		return nil
	}
}

func setKeep(o *Options, s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 2 {
		return errors.New("the epoch before the newest is what is left when a job dies while writing")
	}
	o.Keep = n
	return nil
}

func setSharing(o *Options, s string) error {
	o.Sharing = s
	if _, err := vfs.ParseSharing(s); err != nil {
		return errors.New("not understood")
	}
	return nil
}

func setEpoch(o *Options, s string) error {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return errors.New("not understood")
	}
	o.Epoch = storage.Epoch(n)
	return nil
}

func setRedundancy(o *Options, s string) error {
	o.Redundancy = s
	if _, err := (&Options{Redundancy: s, Local: "any"}).redundancy(); err != nil {
		return errors.New("not understood")
	}
	return nil
}

var bytesForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([kKMGT]?)(i?)B?$`)

func amount(at func(*Options) *int64) func(*Options, string) error {
	return func(o *Options, s string) error {
		m := bytesForm.FindStringSubmatch(strings.TrimSpace(s))
		if m == nil || m[2] == "" && (m[3] != "" || strings.Contains(m[1], ".")) {
			return errors.New("not understood")
		}
		v, err := strconv.ParseFloat(m[1], 64)
		unit := 1000.0
		if m[3] != "" {
			unit = 1024
		}
		for range strings.Index(" KMGT", strings.ToUpper(m[2] + " ")[:1]) {
			v *= unit
		}
		if err != nil || v >= 1<<62 {
			return errors.New("too large")
		}
		*at(o) = int64(v)
		return nil
	}
}

var signalNames = map[string]os.Signal{
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP,
	"INT": syscall.SIGINT, "URG": syscall.SIGURG, "WINCH": syscall.SIGWINCH, "XCPU": syscall.SIGXCPU,
}

// signals reads a list of signal names; "none" is the empty list.
func signals(at func(*Options) *[]os.Signal) func(*Options, string) error {
	return func(o *Options, s string) error {
		out := []os.Signal{}
		for _, name := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }) {
			if strings.EqualFold(name, "none") {
				continue
			}
			sig, ok := signalNames[strings.TrimPrefix(strings.ToUpper(name), "SIG")]
			if !ok {
				return fmt.Errorf("unknown signal %q", name)
			}
			out = append(out, sig)
		}
		*at(o) = out
		return nil
	}
}
