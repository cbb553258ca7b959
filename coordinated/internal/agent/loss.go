package agent

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/internal/units"
)

// Late is a rank's word on an epoch that was given up.
type Late struct {
	Rank  int    `json:"-"`
	State string `json:",omitempty"` // of its main thread; empty: it was parked
}

// gaveUp collects, on all ranks, the names of ranks that never reached a Point, and the reasons.
func (a *Agent) gaveUp(act cut.GaveUp) {
	if act.Stop {
		a.Triggers.Again()
	}
	lost := time.Since(a.armed)
	var x Late
	if !act.Parked {
		x.State = a.mainThread()
	}
	data, err := json.Marshal(x)
	if err != nil {
		a.Log.Error("holdfast: cannot report why an epoch was given up", "error", err)
	}
	a.Go(func() {
		blobs, err := a.Allgather(a.ctx, act.Epoch, "culprits", data)
		if err != nil {
			return
		}
		a.GaveUp(act.Epoch, decodeLate(blobs))
		_ = a.Do(a.ctx, func() { a.Triggers.GivenUp(lost) }) // closed: nothing follows
	})
}

func decodeLate(blobs []cut.Blob) []Late {
	out := make([]Late, len(blobs))
	for i, b := range blobs {
		if err := json.Unmarshal(b.Data, &out[i]); err != nil {
			out[i].State = "unknown (malformed report): " + err.Error()
		}
		out[i].Rank = b.Rank
	}
	return out
}

// Loss is why a job cannot go on.
type Loss struct {
	Rank     int    // that is lost, or has given up
	Noticed  int    // rank that noticed
	Observed string // observation
}

// leave sends the neighbours the reason and gives the process up.
func (a *Agent) leave(from int, msg cut.Message) {
	if a.left {
		return
	}
	a.left = true
	l := Loss{Rank: msg.Rank, Noticed: int(msg.Had), Observed: msg.Stage}
	_, deadlocked := Deadlocked(l.Observed)
	for _, n := range a.Topology.Neighbours() {
		if n != from && (n != msg.Rank || deadlocked) {
			a.send(n, msg)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	a.Plane.Flush(ctx)
	cancel()
	a.Lost(l)
}

// Abort reports to the other ranks that this one gives up because of why. Lost is not called.
func (a *Agent) Abort(why error) {
	_ = a.Do(context.Background(), func() { // closed already: no rank is left
		a.left = true
		msg := cut.Message{Kind: cut.KindLost, Rank: a.Topology.Rank, Had: uint64(a.Topology.Rank),
			Stage: Aborted(why)}
		for _, n := range a.Topology.Neighbours() {
			a.send(n, msg)
		}
	})
}

// abortedBy precedes the reason of a rank that gave up; stuckBy follows it if ranks are deadlocked.
const (
	abortedBy = "aborted: "
	stuckBy   = "ranks are deadlocked: "
)

// Aborted returns the observation that other ranks make of a rank that gives up.
func Aborted(why error) string { return abortedBy + units.Cut(why.Error(), 1200) }

// Abortion returns the reason for which a rank gave up, from another rank's observation; false: it did not.
func Abortion(observed string) (why string, ok bool) { return strings.CutPrefix(observed, abortedBy) }

// Deadlocked names the deadlocked ranks, if that was observed.
func Deadlocked(observed string) (who string, ok bool) {
	return strings.CutPrefix(observed, abortedBy+stuckBy)
}

// Silence returns the time in the control plane's report of a silent rank; 0: it is another report.
func Silence(observed string) time.Duration {
	_, s, ok := strings.Cut(observed, "silent for ")
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if !ok || err != nil {
		return 0
	}
	return d
}
