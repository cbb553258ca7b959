package observe

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/internal/job"
)

// Job holds the reports on all ranks, for holdfast run. All methods may be called by any goroutine.
type Job struct {
	began    time.Time
	patience time.Duration

	mu       sync.Mutex // guards the fields below
	ranks    []Rank
	known    []bool
	keys     []string // of the ranks that wait for ever, at the first look that found them
	first    time.Time
	deadlock string // in words
	named    bool   // it is reported
	looks    uint64 // at which all ranks were there
	flying   uint64 // messages in flight at those, summed up
	most     uint64 // at one of the moments
}

// Ranks that can never go on count as deadlocked when nothing has moved for a time: quick if no message of the job is
// in flight, else the patience of New. If one of them polls, the time is pollersWait times as long, as it may compute
// between the polls.
const (
	quick       = 2 * time.Second
	pollersWait = 10
)

// New returns a job without any report. patience is the time without progress after which ranks that wait for each
// other count as deadlocked, at least two seconds. It is ten times as long if one of them polls.
func New(patience time.Duration) *Job {
	return &Job{began: time.Now(), patience: max(patience, quick)}
}

// Take adds a node's report on its ranks, in place of the one before.
func (j *Job) Take(ranks []Rank) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range ranks {
		if r.Rank < 0 || r.Rank >= r.Size {
			continue
		}
		if r.Size != len(j.ranks) || j.ranks[r.Rank].Over && !r.Over { // the next program of the same command
			j.ranks, j.known = make([]Rank, r.Size), make([]bool, r.Size)
		}
		j.ranks[r.Rank], j.known[r.Rank] = r, true
	}
}

// complete reports whether all ranks are known, and none has ended or is counted elsewhere.
func (j *Job) complete() bool {
	return len(j.ranks) > 0 && !slices.Contains(j.known, false) && !slices.ContainsFunc(j.ranks, func(r Rank) bool {
		return r.Over || r.Elsewhere
	})
}

func (j *Job) inFlight() uint64 {
	var sent, received uint64
	for i := range j.ranks {
		sent += j.ranks[i].Sent
		received += j.ranks[i].Received
	}
	return sent - min(sent, received) // nodes are looked at one after the other
}

// Look judges the reports at a time, and returns a description of a deadlock, once for each; else an empty text.
func (j *Job) Look(now time.Time) (said string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	flying := j.inFlight()
	if j.complete() {
		j.looks++
		j.flying += flying
		j.most = max(j.most, flying)
	}
	if len(j.ranks) == 0 || slices.Contains(j.known, false) {
		return ""
	}
	all := make([]watch.ThreadState, len(j.ranks))
	for i := range j.ranks {
		all[i] = j.ranks[i].Thread
	}
	waiting := watch.Stuck(all)
	limit := quick
	if flying > 0 {
		limit = j.patience
	}
	var keys []string
	for _, r := range waiting {
		keys = append(keys, fmt.Sprint(r, ": ", all[r].Key))
		if all[r].Polls {
			limit = pollersWait * j.patience
		}
	}
	if len(keys) == 0 || !slices.Equal(keys, j.keys) {
		j.keys, j.first, j.named = keys, now, false
		if !slices.ContainsFunc(j.ranks, func(r Rank) bool { return r.Over }) { // else somebody has ended the program
			j.deadlock = ""
		}
		return ""
	}
	if j.named || now.Sub(j.first) < limit {
		return ""
	}
	j.named, j.deadlock = true, explain(all, waiting, flying)
	return j.deadlock
}

// mostNamed is how many ranks of a circle are named.
const mostNamed = 16

// explain lists the ranks that wait and the ranks that they wait for.
func explain(all []watch.ThreadState, waiting []int, flying uint64) string {
	var text string
	if cycle := watch.Cycle(all, waiting); cycle != nil {
		var parts []string
		for _, r := range cycle[:min(len(cycle), mostNamed)] {
			parts = append(parts, fmt.Sprintf("rank %d %s", r, all[r].Text))
		}
		if more := len(cycle) - mostNamed; more > 0 {
			parts = append(parts, fmt.Sprintf("%d more", more))
		}
		parts = append(parts, fmt.Sprintf("rank %d", cycle[0]))
		text = fmt.Sprintf("%d rank(s) wait for each other in a circle: %s", len(cycle), strings.Join(parts, " -> "))
		if others := len(waiting) - len(cycle); others > 0 {
			text += fmt.Sprintf("; %d other(s) wait for these", others)
		}
	} else {
		text = fmt.Sprintf("%d rank(s) wait for one that has ended: %s", len(waiting), watch.ExplainStuck(all, waiting))
	}
	if flying > 0 {
		text += fmt.Sprintf("; %d message(s) have been sent and not received: compare their tags", flying)
	}
	return text
}

// Status returns the state for holdfast status.
func (j *Job) Status() *job.Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	st := &job.Status{Watched: true, Deadlock: j.deadlock, Ranks: len(j.ranks), Seconds: time.Since(j.began).Seconds()}
	for i := range j.ranks {
		st.Job = max(st.Job, j.ranks[i].Program)
		st.Nodes = append(st.Nodes, j.ranks[i].Node)
	}
	return st
}

// Ranks returns all ranks, for holdfast status.
func (j *Job) Ranks() (out []job.RankStatus) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.ranks {
		r := j.ranks[i].RankStatus
		if !j.known[i] {
			r.Rank, r.State = i, watch.StateStarting
		}
		out = append(out, r)
	}
	return out
}
