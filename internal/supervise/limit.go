package supervise

import (
	"cmp"
	"time"
)

// mostVain is how many runs in a row may compute for less time than they take to start and
// to stop before the job is not requeued any more.
const mostVain = 3

// inVain notes, at the time limit, whether this run computed for longer than it took to
// start and to stop. It reports true when too many in a row have not: the job would go round
// for ever.
func (r *runner) inVain() bool {
	if r.workAt.IsZero() || r.stopAt.IsZero() {
		return false // said elsewhere
	}
	worked := max(r.stopAt.Sub(r.workAt), 0)
	cost := r.workAt.Sub(r.runAt) + time.Since(r.stopAt)
	if worked >= cost {
		r.mem.Vain = 0
		r.remember()
		return false
	}
	r.mem.Vain++
	r.remember()
	what := "warning"
	if r.mem.Vain >= mostVain {
		what = "giving up, not requeued"
	}
	r.say("%s: this run computed for %v and took %v to start and to stop, the %d. in a row like that; give the job a "+
		"time limit of at least %v (sbatch -t)",
		what, worked.Round(time.Second), cost.Round(time.Second), r.mem.Vain, r.leastLimit(cost))
	if r.mem.Vain < mostVain {
		return false
	}
	r.mem.Vain = 0 // another limit is another try
	r.remember()
	return true
}

// stale notes that this run was started again too often and took no checkpoint. It reports true
// when too many in a row did: the next one would die where they did.
func (r *runner) stale() bool {
	if r.advanced || !r.flags.Requeue {
		return false
	}
	r.mem.Stale++
	over := r.mem.Stale >= mostVain
	if over {
		r.say("not requeued: %d runs of the job in a row were started again too often and took no checkpoint; look "+
			"at what the program says", r.mem.Stale)
		r.mem.Stale = 0 // a person who submits it again has mended something
	}
	r.remember()
	return over
}

// advance notes that a start took a checkpoint.
func (r *runner) advance() {
	r.advanced = true
	if r.mem.Stale > 0 {
		r.mem.Stale = 0
		r.remember()
	}
}

// leastLimit is a time limit with which a job computes for as long as it starts and stops,
// in whole minutes.
func (r *runner) leastLimit(cost time.Duration) time.Duration {
	least := 2*cost + cmp.Or(r.warning.Lead, r.lead)
	return (least + time.Minute - 1).Truncate(time.Minute)
}

// timeToGoOn reports whether a run that lost a rank in its final checkpoint is started again:
// before a time limit that leaves time for more than a start and another final checkpoint.
func (r *runner) timeToGoOn(a *attempt) bool {
	if !r.near || r.told || a.noticedAt.IsZero() || r.deadline.IsZero() || a.last.Stopped != 0 {
		return false
	}
	left := time.Until(r.deadline)
	need := r.opening + 2*time.Duration(r.mem.Seconds*float64(time.Second)) + 10*time.Second
	if left < 2*need {
		return false
	}
	r.stopping, r.lead = false, max(need, left/3)
	r.say("a rank was lost in the final checkpoint; %v are left: starting again, the next final checkpoint begins %v "+
		"before the time limit",
		left.Round(time.Second), r.lead.Round(time.Second))
	return true
}
