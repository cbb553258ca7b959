// Package doctor finds out what is wrong with a machine before a job does: MPI and
// its launcher, devices, signals, directories, limits, the batch system.
package doctor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// A State is how a check ended.
type State string

// The states, best first.
const (
	OK      State = "ok"
	Skipped State = "skipped" // does not matter here
	Note    State = "note"    // matters to some programs; the settings here do not ask for it
	Warning State = "warning" // a job runs, but slower or less safely
	Failed  State = "failed"  // a job would fail
)

// A Finding is the result of one check.
type Finding struct {
	Area   string `json:"area"`             // area of the check, such as MPI or directories
	Check  string `json:"check"`            // name of the check
	State  State  `json:"state"`            // result of the check
	Detail string `json:"detail"`           // the finding, for people
	Remedy string `json:"remedy,omitempty"` // the remedy
}

// Options select the checks.
type Options struct {
	Self          []string // command that runs Rank, without its arguments
	Local, Global string   // directories of the job; empty: none is configured
	Config        error    // the mistakes in the configuration
	Off           string   // the setting by which programs run without checkpoints; empty: they do not
	Timing        string   // when checkpoints are taken by the clock; empty: they are not
	Loss          string   // the cost of a node's loss with it; empty: there are no directories
	Stray         []string // variables that are none of Holdfast's, though they look so
	Interface     string   // of the control plane
	Device        string   // of the settings; empty: none is asked for
	Nodes         int      // of the Slurm job; 0: not known
	Note          func(string)
}

type report struct {
	Options
	kindOf   func(dir string) (vfs.Kind, error) // nil: vfs.KindOf; tests have other file systems
	mu       sync.Mutex
	findings []Finding
}

// tidyTime is how long a check that has to end may take for that.
const tidyTime = 15 * time.Second

// checkTimeout bounds a check: a machine that is broken tends to hang.
const checkTimeout = time.Minute

// Run makes all checks. When ctx ends it returns the checks that it has made, and removes their files.
func Run(ctx context.Context, o Options) []Finding {
	r := &report{Options: o}
	for _, area := range []struct {
		name string
		look func(context.Context, *report)
	}{
		{"configuration", lookConfig}, {"MPI", lookMPI}, {"languages", lookLanguages},
		{"network cards", lookRegistrations}, {"devices", lookDevices},
		{"directories", lookDirectories}, {"network", lookNetwork}, {"limits", lookLimits}, {"Slurm", lookSlurm},
	} {
		if o.Note != nil {
			o.Note(area.name)
		}
		done := make(chan struct{})
		bounded, cancel := context.WithTimeout(ctx, checkTimeout)
		go func() { // it may be stuck in a driver or on a dead file system
			defer close(done)
			area.look(bounded, r)
		}()
		select {
		case <-done:
		case <-bounded.Done():
			select { // it removes its files
			case <-done:
			case <-time.After(tidyTime):
			}
		}
		if ctx.Err() != nil {
			cancel()
			break // a part that was not checked is not broken
		}
		if bounded.Err() != nil {
			r.add(area.name, "time", Failed, fmt.Sprintf("no answer in %v", checkTimeout),
				"look for a hanging file system (df), driver (clinfo, nvidia-smi) or daemon")
		}
		cancel()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.findings
}

func (r *report) add(area, check string, s State, detail, remedy string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findings = append(r.findings, Finding{Area: area, Check: check, State: s, Detail: detail, Remedy: remedy})
}

// Worst returns the worst state there is.
func Worst(findings []Finding) State {
	rank := map[State]int{OK: 0, Skipped: 0, Note: 0, Warning: 1, Failed: 2}
	worst := OK
	for _, f := range findings {
		if rank[f.State] > rank[worst] {
			worst = f.State
		}
	}
	return worst
}

func lookConfig(_ context.Context, r *report) {
	for _, text := range r.Stray {
		r.add("configuration", "variables", Warning, text, "'holdfast config --all' lists the variables")
	}
	if r.Config != nil {
		r.add("configuration", "values", Failed, r.Config.Error(), "'holdfast config --all' lists the keys and what "+
			"they may be")
		return
	}
	r.add("configuration", "values", OK, "a job can start with it; 'holdfast config' shows it", "")
	if r.Loss != "" {
		if r.Timing != "" {
			r.add("configuration", "checkpoints", OK, "by the clock: "+r.Timing, "")
		} else {
			r.add("configuration", "checkpoints", Warning, "only when asked for: timed ones are switched off",
				"set HOLDFAST_INTERVAL or HOLDFAST_MTBF")
		}
		r.add("configuration", "loss of a node", OK, r.Loss, "")
	}
}
