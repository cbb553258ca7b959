package watch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// ThreadState is one rank's report on its main thread, for rank 0 to find out whether it can ever go on.
type ThreadState struct {
	Rank int

	// Key is the same as long as the rank has got nowhere.
	Key string
	// Text has its place, with the program's file and line.
	Text string

	Closed        bool `json:",omitempty"` // it has called Close: it sends nothing more, and still receives
	InFinalize    bool `json:",omitempty"` // it is in Finalize: it does not even receive
	InRestore     bool `json:",omitempty"` // it waits in Restore for all ranks
	BeforeRestore bool `json:",omitempty"` // it has not called Restore
	Polls         bool `json:",omitempty"` // it polls for its messages

	Calls   uint64 `json:",omitempty"` // as in Thread
	Calling string `json:",omitempty"`

	Comm    string            `json:",omitempty"` // it is inside a collective on it
	Sources []int             `json:",omitempty"` // it waits for a message of these
	Any     []string          `json:",omitempty"` // or of any member of these communicators
	All     bool              `json:",omitempty"` // it needs all of them
	Takers  []int             `json:",omitempty"` // it waits until these receive
	Entered map[string]uint64 `json:",omitempty"` // collectives, by communicator that it is a member of
	Sizes   map[string]int    `json:",omitempty"` // members of those

	Threads []ThreadState `json:",omitempty"` // its other threads, which wait as well; any one may get on
}

// Waits reports whether the rank gets on only when another does.
func (d *ThreadState) Waits() bool {
	return d.InRestore || d.Comm != "" || len(d.Sources)+len(d.Any)+len(d.Takers) > 0
}

// Stuck returns the ranks that wait for ever, in order, if nothing is in flight:
// for those that have closed, or for each other. Whatever is not known counts as
// going to come.
func Stuck(all []ThreadState) []int {
	goes := make([]bool, len(all)) // gets on, or may
	for changed := true; changed; {
		changed = false
		for r := range all {
			if d := &all[r]; !goes[r] && !d.Closed && !d.InFinalize && d.mayContinue(all, goes) {
				goes[r], changed = true, true
			}
		}
	}
	var out []int
	for r := range all {
		if !goes[r] && !all[r].Closed && !all[r].InFinalize {
			out = append(out, r)
		}
	}
	return out
}

// mayContinue reports whether those that go can make this rank go.
func (d *ThreadState) mayContinue(all []ThreadState, goes []bool) bool {
	for i := range d.Threads {
		if d.Threads[i].mayContinue(all, goes) {
			return true
		}
	}
	switch {
	case !d.Waits():
		return true
	case d.InRestore:
		return !slices.ContainsFunc(all, func(o ThreadState) bool {
			return (o.BeforeRestore || o.Closed) && !goes[o.Rank]
		})
	case d.Comm != "":
		return d.othersCome(all, goes)
	}
	might := 0
	for _, s := range d.Sources {
		might += ways(s >= 0 && s < len(all) && goes[s])
	}
	for _, c := range d.Any {
		might += ways(anyMember(c, d.Rank, all, goes))
	}
	for _, t := range d.Takers {
		might += ways(t >= 0 && t < len(all) && (goes[t] || all[t].Closed && !all[t].InFinalize))
	}
	if d.All {
		return might == len(d.Sources)+len(d.Any)+len(d.Takers)
	}
	return might > 0
}

// ways counts one if yes.
func ways(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// othersCome reports whether all members of the communicator have entered the
// collective, or may.
func (d *ThreadState) othersCome(all []ThreadState, goes []bool) bool {
	members := 0
	for r := range all {
		n, member := all[r].Entered[d.Comm]
		if !member {
			continue
		}
		members++
		if n < all[d.Rank].Entered[d.Comm] && !goes[r] {
			return false
		}
	}
	// A member that does not list it may be creating it.
	return members >= all[d.Rank].Sizes[d.Comm] || slices.Contains(goes, true)
}

// anyMember reports whether a member of comm other than rank may go on.
func anyMember(comm string, rank int, all []ThreadState, goes []bool) bool {
	for r := range all {
		if _, member := all[r].Entered[comm]; member && r != rank && goes[r] {
			return true
		}
	}
	return false
}

// Late returns the ranks that wait in a collective call, and those that have not come to it, in order. These may
// compute, or wait in an MPI that is not seen.
func Late(all []ThreadState) (waiting, late []int) {
	var calls uint64
	for _, d := range all {
		if d.Calling != "" {
			calls = max(calls, d.Calls)
		}
	}
	for r, d := range all {
		switch {
		case d.Calls < calls:
			late = append(late, r)
		case d.Calling != "":
			waiting = append(waiting, r)
		}
	}
	return waiting, late
}

// ExplainStuck names the ranks that wait and those that are gone, with their calls.
func ExplainStuck(all []ThreadState, waiting []int) string {
	var parts []string
	add := func(r int) { parts = append(parts, fmt.Sprintf("rank %d is %s", r, all[r].Text)) }
	const most = 4
	for i, r := range waiting {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more wait", len(waiting)-most))
			break
		}
		add(r)
	}
	n := 0
	for r := range all {
		if !all[r].Closed && !all[r].InFinalize {
			continue
		}
		if n++; n <= most {
			add(r)
		}
	}
	if n > most {
		parts = append(parts, fmt.Sprintf("and %d more have closed", n-most))
	}
	return strings.Join(parts, "; ")
}

// Culprit returns the rank to name first: one that has gone, else the first that waits.
func Culprit(all []ThreadState, waiting []int) int {
	if r := slices.IndexFunc(all, func(d ThreadState) bool { return d.Closed || d.InFinalize }); r >= 0 {
		return r
	}
	return waiting[0]
}

// Blocked enters the call that the main thread is in; site is its place, from CallSite. Messages that the call waits
// for beyond the known ones may come at any time, unless it needs all.
func (d *ThreadState) Blocked(act endpoint.Activity, site string) {
	d.Text = InCall(act) + site
	for _, t := range act.Threads {
		other := ThreadState{Rank: d.Rank}
		other.Blocked(t, "")
		d.Threads = append(d.Threads, other)
		d.Text += ", a thread " + other.Text
	}
	switch {
	case act.Collective:
		d.Comm = act.Comm
	case act.All || !act.More:
		d.All = act.All
		d.WaitFor(act.Waits)
		if !d.Waits() && !act.More && act.Comm != "" { // a lock of a window: any member may hold it
			d.Any = []string{act.Comm}
		}
	}
}

// Cycle returns ranks that wait for each other in a circle, each for the next and the last for the first, among those
// that wait for ever; nil: they wait for one that has closed.
func Cycle(all []ThreadState, waiting []int) []int {
	for _, r := range waiting {
		var path []int
		for r >= 0 && !slices.Contains(path, r) {
			path = append(path, r)
			r = all[r].needs(all, waiting)
		}
		if at := slices.Index(path, r); at >= 0 {
			return path[at:]
		}
	}
	return nil
}

// needs returns a rank among those that wait for which this one waits, or -1.
func (d *ThreadState) needs(all []ThreadState, waiting []int) int {
	if first := d.needed(all, waiting); first >= 0 || len(d.Threads) == 0 {
		return first
	}
	return d.Threads[0].needed(all, waiting)
}

func (d *ThreadState) needed(all []ThreadState, waiting []int) int {
	for _, r := range waiting {
		n, member := all[r].Entered[d.Comm]
		late := d.Comm != "" && member && n < all[d.Rank].Entered[d.Comm]
		if r != d.Rank && (late || slices.Contains(d.Sources, r) || slices.Contains(d.Takers, r)) {
			return r
		}
	}
	for _, comm := range d.Any {
		for _, r := range waiting {
			if _, member := all[r].Entered[comm]; member && r != d.Rank {
				return r
			}
		}
	}
	return -1
}

// WaitFor enters the messages that a call waits for.
func (d *ThreadState) WaitFor(ws []endpoint.Wait) {
	for _, w := range ws {
		switch {
		case w.Send:
			d.Takers = append(d.Takers, w.Peer)
		case w.Source == mpiwrap.AnySource:
			d.Any = append(d.Any, w.Comm)
		default:
			d.Sources = append(d.Sources, w.Source)
		}
	}
}
