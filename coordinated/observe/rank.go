package observe

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/job"
)

// Rank is the report of a node's daemon on one of its ranks.
type Rank struct {
	job.RankStatus
	Size           int
	Program        string
	Thread         watch.ThreadState
	Sent, Received uint64 // messages so far
	Over           bool   // it has called MPI_Finalize, or its process has ended
	Elsewhere      bool   // libholdfast counts its messages now, and they are not visible here

	Refused  map[string]uint64 // calls that no checkpoint can keep, and how often the program has made them
	Moments  uint64            // at which the program was asked for the obstacles to a checkpoint
	Bad      uint64            // number of those looks at which a checkpoint would have been refused
	Met      map[string]uint64 // the obstacles, and the number of moments with each
	Receives uint64            // most that were pending at one moment
}

// Page is a program's report on one rank, in memory that it shares. Its methods read that memory and do not wait.
type Page interface {
	Activity() endpoint.Activity
	Polling() (last endpoint.Wait, polls uint64)
	Collectives() []endpoint.Collective
	Concurrent() bool
	Messages() (sent, received uint64)
	Over() (finalized, elsewhere bool)
	Refused() map[string]uint64
	Ask() bool
	Answered() (receives uint64, met map[string]uint64, ok bool)
}

// Eye looks at one rank. Only one goroutine may use it at a time.
type Eye struct {
	page  Page
	rank  Rank
	seq   uint64
	since time.Time // in the call, or in the state
	polls uint64
	asked time.Time
	open  bool // a question has not been answered yet
}

// askEvery is the time between two questions for the obstacles to a checkpoint.
const askEvery = time.Second

// NewEye returns an Eye for a rank of size ranks. program, node and daemon, a process ID, are for the report.
func NewEye(p Page, rank, size int, program, node string, daemon int) *Eye {
	return &Eye{page: p, since: time.Now(), rank: Rank{Size: size, Program: program,
		RankStatus: job.RankStatus{Rank: rank, Node: node, Daemon: daemon}}}
}

// Look reads the page and returns a report on the rank. gone means that the process has ended: this is the last look.
// At most once a second it asks the program for obstacles to a checkpoint; a later Look has the answer.
func (e *Eye) Look(now time.Time, gone bool) Rank {
	r := &e.rank
	r.Over, r.Elsewhere = e.page.Over()
	r.Over = r.Over || gone
	r.Sent, r.Received = e.page.Messages()
	r.Refused = e.page.Refused()
	e.note(now)
	act := e.page.Activity()
	last, polls := e.page.Polling()
	d := watch.ThreadState{Rank: r.Rank, Key: fmt.Sprint(act.Seq), Closed: r.Over, Entered: map[string]uint64{},
		Sizes: map[string]int{}}
	for _, k := range e.page.Collectives() {
		d.Entered[k.Comm], d.Sizes[k.Comm] = k.Entered, k.Size
	}
	state, call, comm, waits := watch.StateRunning, "", "", ""
	switch {
	case r.Elsewhere:
		waits = "its messages are counted for libholdfast now: ask holdfast status of its directory"
	case r.Over:
		state, d.Text = watch.StateClosed, "beyond MPI_Finalize"
	case act.Blocked:
		state, call, comm = watch.StateBlocked, act.Op, act.Comm
		waits = strings.TrimSpace(watch.Describe(act.Waits))
		if n := len(act.Threads); n > 0 {
			waits += fmt.Sprintf("; %d other thread(s) in calls", n)
		}
		if act.Every || !e.page.Concurrent() { // else a thread that is not seen here may get it on
			d.Blocked(act, "")
		}
	case polls != e.polls && act.Seq == e.seq:
		state, waits = watch.StatePolling, strings.TrimSpace(watch.Describe([]endpoint.Wait{last}))
		d.Polls, d.Text = true, "polling "+waits
		if !e.page.Concurrent() {
			d.WaitFor([]endpoint.Wait{last})
		}
	}
	if state != r.State || act.Seq != e.seq {
		e.since = now
	}
	e.seq, e.polls = act.Seq, polls
	r.State, r.Call, r.Comm, r.Waits, r.Seconds = state, call, comm, waits, now.Sub(e.since).Seconds()
	r.Thread = d
	return *r
}

// note takes in an answer, and asks again in time.
func (e *Eye) note(now time.Time) {
	r := &e.rank
	if receives, met, ok := e.page.Answered(); ok && e.open {
		e.open = false
		r.Moments++
		r.Receives = max(r.Receives, receives)
		if len(met) > 0 {
			r.Bad++
		}
		sum := map[string]uint64{}
		for text, n := range r.Met {
			sum[text] = n
		}
		for text := range met {
			sum[text]++
		}
		r.Met = sum // the one before may be on its way to holdfast run
	}
	if !e.open && now.Sub(e.asked) >= askEvery && e.page.Ask() {
		e.open, e.asked = true, now
	}
}
