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

// gaveUp collects, on all ranks, who never reached a Point and why.
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
	Observed string // what it did
}

// leave tells the neighbours why and gives the process up.
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

// Abort tells the other ranks that this one gives up because of why, of which Lost does not
// hear.
func (a *Agent) Abort(why error) {
	_ = a.Do(context.Background(), func() { // closed already: nobody is left to tell
		a.left = true
		msg := cut.Message{Kind: cut.KindLost, Rank: a.Topology.Rank, Had: uint64(a.Topology.Rank),
			Stage: Aborted(why)}
		for _, n := range a.Topology.Neighbours() {
			a.send(n, msg)
		}
	})
}

// abortedBy stands before what a rank gave up because of, and stuckBy behind it where ranks
// wait for what cannot come.
const (
	abortedBy = "aborted: "
	stuckBy   = "ranks are deadlocked: "
)

// Aborted is what the other ranks observe of one that gives up.
func Aborted(why error) string { return abortedBy + units.Cut(why.Error(), 1200) }

// Abortion is what a rank gave up because of, as others observed it; false: it did not.
func Abortion(observed string) (why string, ok bool) { return strings.CutPrefix(observed, abortedBy) }

// Deadlocked says which ranks wait for what cannot come, if that was observed.
func Deadlocked(observed string) (who string, ok bool) {
	return strings.CutPrefix(observed, abortedBy+stuckBy)
}

// Silence is the time in the control plane's report of a silent rank; 0: it tells of
// something else.
func Silence(observed string) time.Duration {
	_, s, ok := strings.Cut(observed, "silent for ")
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if !ok || err != nil {
		return 0
	}
	return d
}
