package supervise

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// memory is what a run under Slurm leaves beside the checkpoints at global for the next
// one. All of it is a hint: without the file, or with a damaged one, nothing is known.
type memory struct {
	measured
	Job     string    `json:"job,omitempty"`     // Slurm's number; what follows is about it
	BegunAt time.Time `json:"begun_at,omitzero"` // when it began from nothing; zero = it restored something
	Safe    bool      `json:"safe,omitempty"`    // an epoch of it came to global
	Local   string    `json:"local,omitempty"`   // directory on each node's own disk
	Vain    int       `json:"in_vain,omitempty"` // runs up to the time limit in a row that brought little
	Width   int       `json:"nodes,omitempty"`   // of the program, when the job had all of its nodes
	Tasks   int       `json:"tasks,omitempty"`   // ranks, under srun
	// runs in a row that were started again too often and took no checkpoint
	Stale int `json:"stale,omitempty"`
}

func (r *runner) memoryFile() string { return filepath.Join(r.opt.Global, "holdfast.run.json") }

// recall reads what an earlier run has left.
func (r *runner) recall() {
	r.mem = memory{}
	if r.opt.Global == "" || r.job == nil {
		return
	}
	b, err := os.ReadFile(r.memoryFile())
	if err != nil || json.Unmarshal(b, &r.mem) != nil {
		r.mem = memory{}
		return
	}
	if r.mem.Job != r.job.ID { // of another job
		r.mem = memory{measured: r.mem.measured}
		return
	}
	r.began, r.begunAt, r.safe = !r.mem.BegunAt.IsZero(), r.mem.BegunAt, r.mem.Safe
}

// remember keeps it.
func (r *runner) remember() {
	if r.opt.Global == "" || r.job == nil {
		return
	}
	r.mem.Job, r.mem.BegunAt, r.mem.Safe = r.job.ID, r.begunAt, r.safe
	b, err := json.Marshal(r.mem)
	if err != nil {
		return
	}
	tmp := r.memoryFile() + ".new"
	if os.WriteFile(tmp, append(b, '\n'), 0o600) == nil {
		_ = os.Rename(tmp, r.memoryFile()) // a hint, no more
	}
}

// kept notes that an epoch is at global, or was there before the job.
func (r *runner) kept() {
	if !r.safe {
		r.safe = true
		r.remember()
	}
}
