package decide

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// requeueFor bounds the attempts to requeue a job without a time limit while Slurm does not answer.
const requeueFor = time.Hour

// requeuePause is between two questions to a Slurm that does not answer.
var requeuePause = sleep.Backoff{First: time.Second, Longest: 10 * time.Second}

// finish ends the run without a requeue.
func (m *Machine) finish(code int) {
	m.phase = between
	if code != ExitBad {
		m.exit(code)
		return
	}
	m.salvage(func() { m.exit(code) })
}

// leave ends the run, and requeues the job where that was asked for.
func (m *Machine) leave(code int) {
	m.phase = between
	m.salvage(func() {
		switch {
		case !m.cfg.Requeue || m.cfg.Job == nil:
			m.exit(code)
		case code == ExitStopped && m.limit.near && !m.limit.byTERM && m.noProgress():
			m.exit(ExitBad)
		default:
			end := m.now.Add(requeueFor)
			if !m.limit.deadline.IsZero() {
				end = m.limit.deadline.Add(m.cfg.Grace)
			}
			m.requeue(code, requeuePause, end)
		}
	})
}

// requeue puts the job back into the queue unless it is settled otherwise, and returns its action.
func (m *Machine) requeue(code int, pause sleep.Backoff, end time.Time) {
	exit := func() { m.exit(code) }
	failed := func(err error) {
		switch left, wait := end.Sub(m.now), pause.Next(); {
		case !slurm.Temporary(err):
			m.say("%v", err)
			exit()
		case left < wait:
			m.say("%v; the job is not requeued, because its time is over: submit the script again", err)
			exit()
		default:
			m.say("%v; trying again in %v", err, wait)
			m.after(wait, func() { m.requeue(code, pause, end) })
		}
	}
	m.askJob(0, func(info slurm.JobInfo, err error) {
		switch {
		case err != nil && slurm.Temporary(err):
			failed(err)
			return
		case err != nil && m.limit.byTERM:
			m.say("the job is not requeued, because nobody knows whether it was cancelled: %v", err)
			exit()
			return
		case err != nil:
			m.say("warning: %v", err)
		case info.WhyNoRequeue(m.cfg.Job.Restarts) != "":
			m.say("%s", info.WhyNoRequeue(m.cfg.Job.Restarts))
			exit()
			return
		}
		if code == ExitStopped && m.past.workAt.IsZero() && info.Preempted.IsZero() {
			m.say("the job is not requeued, because the program never began to compute and would not next time: " +
				"give it a longer time limit (sbatch -t)")
			exit()
			return
		}
		m.do(Requeue{})
		m.then = func(ev Event) {
			if err := ev.(Requeued).Err; err != nil {
				failed(err)
				return
			}
			m.say("job %s requeued", m.cfg.Job.ID)
			exit()
		}
	})
}

// ours asks Slurm whether the job still belongs to this command, and waits for the answer. While this node was frozen
// or cut off, another node may have put the job back into the queue: it may run elsewhere then, and two must not write.
func (m *Machine) ours(pause sleep.Backoff, yes, no func()) {
	if m.cfg.Job == nil {
		yes()
		return
	}
	m.askJob(0, func(info slurm.JobInfo, err error) {
		id, l := m.cfg.Job.ID, &m.limit
		switch {
		case err == nil && info.Restarts > m.cfg.Job.Restarts:
			m.say("job %s was requeued meanwhile: this run of it ends here", id)
			no()
		case err == nil && slices.ContainsFunc(overStates, func(s string) bool {
			return strings.HasPrefix(info.State, s)
		}):
			m.say("job %s is %s: this run of it ends here", id, info.State)
			no()
		case err == nil:
			yes()
		case slurm.Unknown(err):
			m.say("%v: this run of the job ends here", err)
			no()
		case !slurm.Temporary(err):
			m.say("warning: %v", err)
			yes()
		case !l.deadline.IsZero() && m.now.After(l.deadline.Add(m.cfg.Grace)):
			m.say("%v; the time limit is over", err)
			no()
		default:
			wait := pause.Next()
			m.say("%v; nothing starts until Slurm confirms that the job still exists; asking again in %v", err,
				wait)
			m.after(wait, func() { m.ours(pause, yes, no) })
		}
	})
}

// overStates begin the states of a job that will not run on, or not as it did.
var overStates = []string{"PENDING", "COMPLETING", "COMPLETED", "CANCELLED", "PREEMPTED", "REQUEUE", "TIMEOUT",
	"FAILED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "OUT_OF_ME"}

// salvageTime bounds the copy of checkpoints from the nodes to global if the job has no time limit; salvageLeast is the
// least time for it.
const (
	salvageTime  = 10 * time.Minute
	salvageLeast = 10 * time.Second
)

// salvage brings the newest checkpoint that is only on the nodes' own disks to global before the
// run ends: the job's nodes, and with them their disks, are soon lost to it.
func (m *Machine) salvage(follow func()) {
	at, l := m.past.at, &m.limit
	newest, have := max(at[storage.LevelLocal], at[storage.LevelPartner], at[storage.LevelParity]),
		at[storage.LevelGlobal]
	if m.past.salvaged || m.cfg.Job == nil || !m.cfg.Local || !m.cfg.Global || newest <= have ||
		len(m.cfg.Nodes) == 0 {
		follow()
		return
	}
	m.past.salvaged = true
	within := salvageTime
	if !l.deadline.IsZero() {
		within = min(within, l.deadline.Sub(m.now)-salvageLeast)
	}
	if l.byTERM {
		within = m.cfg.Grace / 2
	}
	if within < salvageLeast {
		m.say("epoch %d is on the nodes' own disks only, and there is no time to copy it to global", newest)
		follow()
		return
	}
	m.say("copying epoch %d from the nodes' own disks to global, for %v at most", newest, within.Round(time.Second))
	live := slices.DeleteFunc(slices.Clone(m.cfg.Nodes), func(n string) bool { return m.nodes.dead[n] != "" })
	m.do(Salvage{live, have, within})
	m.then = func(ev Event) {
		if s := ev.(Salvaged); s.Err != nil {
			m.say("epoch %d could not be copied to global: %v", newest, s.Err)
		} else {
			m.say("epoch %d is now committed at global", s.Epoch)
		}
		follow()
	}
}
