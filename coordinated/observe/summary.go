package observe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Met is something that a checkpoint would have been refused for.
type Met struct {
	What  string `json:"what"`
	Count uint64 `json:"count"`
}

// Summary describes a run, for users who consider checkpoints.
type Summary struct {
	Ranks    int    `json:"ranks"`
	Watched  int    `json:"watched"`  // of those
	Messages uint64 `json:"messages"` // that were sent
	// In flight at the moments at which all ranks were looked at.
	Looks    uint64  `json:"looks"`
	InFlight float64 `json:"in_flight_mean"`
	Most     uint64  `json:"in_flight_most"`
	// The reasons for which a checkpoint would have been refused, at the moments at which a rank was asked.
	Moments  uint64 `json:"moments"`
	Bad      uint64 `json:"moments_refused"`
	Pending  []Met  `json:"pending,omitempty"`
	Calls    []Met  `json:"refused_calls,omitempty"` // that no checkpoint can keep
	Receives uint64 `json:"receives_most"`           // pending in a rank at one moment
	Deadlock string `json:"deadlock,omitempty"`      // that was there at the end
}

// Summary sums up the reports.
func (j *Job) Summary() Summary {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := Summary{Ranks: len(j.ranks), Looks: j.looks, Most: j.most, Deadlock: j.deadlock}
	if j.looks > 0 {
		s.InFlight = float64(j.flying) / float64(j.looks)
	}
	pending, calls := map[string]uint64{}, map[string]uint64{}
	for i := range j.ranks {
		r := &j.ranks[i]
		if j.known[i] {
			s.Watched++
		}
		s.Messages += r.Sent
		s.Moments += r.Moments
		s.Bad += r.Bad
		s.Receives = max(s.Receives, r.Receives)
		for text, n := range r.Met {
			pending[text] += n
		}
		for text, n := range r.Refused {
			calls[text] += n
		}
	}
	s.Pending, s.Calls = list(pending), list(calls)
	return s
}

// list has the most frequent first.
func list(of map[string]uint64) (out []Met) {
	for _, text := range slices.Sorted(maps.Keys(of)) {
		out = append(out, Met{text, of[text]})
	}
	slices.SortStableFunc(out, func(a, b Met) int { return int(b.Count) - int(a.Count) })
	return out
}

// String returns the summary in lines.
func (s Summary) String() string {
	var b strings.Builder
	if s.Watched == 0 {
		return "no rank was watched: the program calls no MPI, or its MPI is linked statically or loaded with " +
			"RTLD_DEEPBIND, so that libholdfast-mpi does not see its calls"
	}
	fmt.Fprintf(&b, "%d of %d rank(s) were watched: %d messages", s.Watched, s.Ranks, s.Messages)
	if s.Looks > 0 {
		fmt.Fprintf(&b, ", %.1f in flight on average and %d at most, in %d looks", s.InFlight, s.Most, s.Looks)
	}
	switch {
	case s.Moments == 0 && len(s.Calls) == 0:
		b.WriteString("\nthe program was too short to say what a checkpoint would have met")
	case s.Bad == 0 && len(s.Calls) == 0:
		fmt.Fprintf(&b, "\na checkpoint would have been refused at none of %d moments", s.Moments)
	case s.Bad > 0:
		fmt.Fprintf(&b, "\na checkpoint would have been refused at %d of %d moments:", s.Bad, s.Moments)
	}
	for _, m := range s.Pending {
		fmt.Fprintf(&b, "\n  %s (at %d)", m.What, m.Count)
	}
	if len(s.Calls) > 0 {
		b.WriteString("\nand at all moments from the first of these calls on:")
	}
	for _, m := range s.Calls {
		fmt.Fprintf(&b, "\n  %s (%d call(s))", m.What, m.Count)
	}
	if s.Receives > 0 {
		fmt.Fprintf(&b, "\nup to %d receive(s) of a rank were pending: a restarted program posts them again behind "+
			"hf_restore", s.Receives)
	}
	if s.Deadlock != "" {
		b.WriteString("\nthe program was deadlocked at its end")
	}
	return b.String()
}
