package supervise

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestSalvage: nothing is copied where global has it, or there is no time, and a copy that fails
// leaves nothing. TestSalvage of cmd/holdfast shows one that does not.
func TestSalvage(t *testing.T) {
	commands(t, map[string]string{"srun": "exit 0"})
	for what, change := range map[string]func(r *runner){
		"":                              func(r *runner) { r.at[storage.LevelGlobal] = 1 },
		"there is no time to copy it":   func(r *runner) { r.deadline = time.Now().Add(time.Second) },
		"could not be copied to global": func(r *runner) {},
	} {
		errs := &lockedBuffer{}
		r := &runner{job: &slurm.Job{ID: "5"}, stderr: errs, nodes: []string{"n2"},
			at: map[string]storage.Epoch{storage.LevelLocal: 1}}
		r.opt.Local, r.opt.Global = t.TempDir(), t.TempDir()
		change(r)
		r.salvage(t.Context())
		if got := errs.String(); !strings.Contains(got, what) || what == "" && got != "" {
			t.Errorf("want %q, got\n%s", what, got)
		}
		if rest, _ := os.ReadDir(r.opt.Global); len(rest) > 0 {
			t.Errorf("%s: it left %v", what, rest)
		}
	}
}
