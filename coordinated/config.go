package coordinated

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/viper"

	"github.com/holdfast-hpc/holdfast/storage"
)

// FromEnv returns the options that holdfast.yaml in the working directory (or
// the file that HOLDFAST_CONFIG names) and HOLDFAST_* variables give; variables
// win. What cannot be read is reported by Open, so that every rank learns of
// it. The keys, with their variables:
//
//	job          HOLDFAST_JOB          name of the job; default SLURM_JOB_NAME, then the program's name
//	local        HOLDFAST_LOCAL        directory on the node's own disk
//	global       HOLDFAST_GLOBAL       directory that all nodes see
//	redundancy   HOLDFAST_REDUNDANCY   partner:K or parity:D+P over nodes, for the local shards
//	compress     HOLDFAST_COMPRESS     true: compress what goes to global
//	flush_rate   HOLDFAST_FLUSH_RATE   bytes a second and node for copying to global
//	keep_every   HOLDFAST_KEEP_EVERY   keep each n-th epoch at global as well
//	fresh        HOLDFAST_FRESH        true: do not restore
//	epoch        HOLDFAST_EPOCH        number of the epoch to restore; default the newest
//	cut_timeout  HOLDFAST_CUT_TIMEOUT  duration, such as 90s
//	interval     HOLDFAST_INTERVAL     duration from the end of a checkpoint to the next
//	mtbf         HOLDFAST_MTBF         mean time between failures of the job; chooses the interval
//	deadline_lead HOLDFAST_DEADLINE_LEAD final checkpoint that long before the end of the Slurm job
//	grace        HOLDFAST_GRACE        time from a stop signal to the kill, such as 30s
//	keep         HOLDFAST_KEEP         committed epochs to keep at each level
//	max_pool     HOLDFAST_MAX_POOL     bytes of memory for captures
//	events       HOLDFAST_EVENTS       event log for holdfast report: on, off or a directory; default on, beside the checkpoints
//	signals.checkpoint HOLDFAST_SIGNALS_CHECKPOINT  list, such as USR1
//	signals.stop       HOLDFAST_SIGNALS_STOP        list, such as USR2,TERM
//	control.interface  HOLDFAST_CONTROL_INTERFACE   interface or address of the control plane
//	control.heartbeat  HOLDFAST_CONTROL_HEARTBEAT   duration
//	control.peer_timeout HOLDFAST_CONTROL_PEER_TIMEOUT duration
func FromEnv() Options {
	v := viper.New()
	v.SetEnvPrefix("HOLDFAST")
	v.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	v.AutomaticEnv()
	file := os.Getenv("HOLDFAST_CONFIG")
	explicit := file != ""
	if !explicit {
		file = "holdfast.yaml"
	}
	v.SetConfigFile(file)
	if err := v.ReadInConfig(); err != nil && (explicit || !os.IsNotExist(err)) {
		return Options{bad: fmt.Errorf("coordinated: configuration %s: %w", file, err)}
	}
	return fromViper(v)
}

func fromViper(v *viper.Viper) Options {
	o := Options{
		Job:         v.GetString("job"),
		Local:       v.GetString("local"),
		Global:      v.GetString("global"),
		Redundancy:  v.GetString("redundancy"),
		Compress:    v.GetBool("compress"),
		FlushRate:   v.GetInt64("flush_rate"),
		KeepEvery:   v.GetInt("keep_every"),
		Fresh:       v.GetBool("fresh"),
		Epoch:       storage.Epoch(v.GetUint64("epoch")),
		CutTimeout:  v.GetDuration("cut_timeout"),
		Interval:    v.GetDuration("interval"),
		MTBF:        v.GetDuration("mtbf"),
		Keep:        v.GetInt("keep"),
		MaxPool:     v.GetInt64("max_pool"),
		Events:      v.GetString("events"),
		Interface:   v.GetString("control.interface"),
		Heartbeat:   v.GetDuration("control.heartbeat"),
		PeerTimeout: v.GetDuration("control.peer_timeout"),
	}
	o.DeadlineLead, o.Grace = v.GetDuration("deadline_lead"), v.GetDuration("grace")
	o.askSlurm = true
	if end, err := strconv.ParseInt(os.Getenv("SLURM_JOB_END_TIME"), 10, 64); err == nil {
		o.Deadline = time.Unix(end, 0)
	}
	o.Supervisor = os.Getenv(SupervisorVar)
	if o.Job == "" {
		o.Job = os.Getenv("SLURM_JOB_NAME")
	}
	if o.Job == "" {
		o.Job = filepath.Base(os.Args[0])
	}
	for _, s := range []struct {
		key string
		to  *[]os.Signal
	}{{"signals.checkpoint", &o.CheckpointSignals}, {"signals.stop", &o.StopSignals}} {
		sigs, err := parseSignals(v, s.key)
		if err != nil {
			return Options{bad: err}
		}
		*s.to = sigs
	}
	return o
}

var signalNames = map[string]os.Signal{
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP,
	"INT": syscall.SIGINT, "URG": syscall.SIGURG, "WINCH": syscall.SIGWINCH, "XCPU": syscall.SIGXCPU,
}

// parseSignals reads a list of signal names; nil when the key is not set.
func parseSignals(v *viper.Viper, key string) ([]os.Signal, error) {
	if !v.IsSet(key) {
		return nil, nil
	}
	out := []os.Signal{}
	for _, item := range v.GetStringSlice(key) {
		for _, name := range strings.FieldsFunc(item, func(r rune) bool { return r == ',' || r == ' ' }) {
			s, ok := signalNames[strings.TrimPrefix(strings.ToUpper(name), "SIG")]
			if !ok {
				return nil, &OptionError{Name: key, Why: fmt.Sprintf("unknown signal %q; use USR1, USR2, TERM, HUP, INT, URG, WINCH or XCPU", name)}
			}
			out = append(out, s)
		}
	}
	return out, nil
}
