package supervise

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/slurm"
	_ "github.com/holdfast-hpc/holdfast/storage/s3"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

// TestFewerNodes: a job that Slurm requeues without a node that died keeps its number of ranks,
// without which it could not be restored, and gives up spare nodes first. It is not refused.
func TestFewerNodes(t *testing.T) {
	t.Setenv("SLURM_NTASKS_PER_NODE", "4")
	for _, c := range []struct {
		line           string
		restarts, have int
		width, tasks   int
		spares         int
	}{
		{"srun ./app", 0, 5, 4, 16, 1},
		{"srun ./app", 1, 5, 4, 16, 1},
		{"srun ./app", 1, 4, 4, 16, 0},
		{"srun ./app", 1, 3, 3, 16, 0},
		{"srun -N4 ./app", 1, 4, 4, 16, 0},
		{"srun -N4 -n8 ./app", 1, 3, 3, 8, 0},
		{"srun -n8 ./app", 1, 1, 1, 8, 0},
	} {
		cmd, err := parseCommand(strings.Fields(c.line))
		if err != nil {
			t.Fatal(err)
		}
		s := &setup{cmd: cmd, log: &log{w: io.Discard}, opt: Options{Spares: 1},
			cfg: decide.Config{Job: &slurm.Job{ID: "5", Restarts: c.restarts}}}
		mem := &s.cfg.Memory
		if c.restarts > 0 {
			mem.Width, mem.Tasks = 4, 16
		}
		for i := range c.have {
			s.cfg.Nodes = append(s.cfg.Nodes, fmt.Sprint("n", i))
		}
		if err := s.size(); err != nil || s.cfg.Width != c.width || s.tasks != c.tasks || s.opt.Spares != c.spares {
			t.Errorf("%+v: got %d nodes, %d ranks, %d spare, %v", c, s.cfg.Width, s.tasks, s.opt.Spares, err)
		}
		if s.asGiven(decide.Start{Number: 1}) {
			t.Errorf("%+v: started as it was given", c)
		}
		if mem.Width != 4 && c.have < 5 || mem.Tasks == 0 {
			t.Errorf("%+v: it forgets that it had %d nodes and %d ranks", c, mem.Width, mem.Tasks)
		}
	}
}

// TestFewerNodesMinRanks: with --min-ranks such a job starts with the ranks that fit, and knows how many
// it had.
func TestFewerNodesMinRanks(t *testing.T) {
	for _, c := range []struct {
		line       string
		have, want int
	}{
		{"srun -n16 ./app", 4, 16},
		{"srun -n16 ./app", 3, 12},
		{"srun -n15 ./app", 3, 12},
		{"srun -n15 ./app", 1, 4},
		{"mpiexec.mpich -n 6 ./app", 2, 4},
		{"mpiexec.mpich -ppn 4 ./app", 3, 12},
	} {
		cmd, err := parseCommand(strings.Fields(c.line))
		if err != nil {
			t.Fatal(err)
		}
		s := &setup{cmd: cmd, log: &log{w: io.Discard}, opt: Options{Limits: decide.Limits{MinRanks: 1}},
			cfg: decide.Config{Job: &slurm.Job{ID: "5", Restarts: 1}}}
		s.cfg.Memory = decide.Memory{Width: 4, Tasks: cmd.tasks + 4*cmd.each}
		for i := range c.have {
			s.cfg.Nodes = append(s.cfg.Nodes, fmt.Sprint("n", i))
		}
		if err := s.size(); err != nil || s.cfg.Full.On(c.have) != c.want || s.cfg.Memory.Tasks != s.cfg.Full.Ranks {
			t.Errorf("%+v: got %d of %+v, memory %+v, %v", c, s.cfg.Full.On(c.have), s.cfg.Full, s.cfg.Memory, err)
		}
	}
}

// TestSlowSlurm: the time limit is known from the environment when Slurm does not
// answer at the start.
func TestSlowSlurm(t *testing.T) {
	commands(t,
		map[string]string{"scontrol": `[ "$1 $2" = "write batch_script" ] && ` +
			`echo "#SBATCH --signal=B:USR1@200" || exit 1`})
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	t.Setenv("SLURM_JOB_ID", "5")
	t.Setenv("SLURM_JOB_END_TIME", fmt.Sprint(end.Unix()))
	s := &setup{cmd: &command{}, log: &log{w: io.Discard}}
	err := s.readJob(t.Context())
	if err != nil || !s.cfg.Deadline.Equal(end) || s.cfg.Warning.Lead != 200*time.Second {
		t.Errorf("got %v, the limit at %v and a warning of %v, want %v and 200s", err, s.cfg.Deadline,
			s.cfg.Warning.Lead, end)
	}
}

// TestMemory: what a run knows of the job's checkpoints is there after a requeue, for the
// same job only; in a directory and in an object store.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	memory(t, dir, func() error { return os.WriteFile(filepath.Join(dir, memoryName), []byte("{"), 0o600) })
	store := &fakes3.Server{}
	memory(t, fakes3.Start(t, store), func() error {
		store.Edit("some/prefix/"+memoryName, func([]byte) []byte { return []byte("{") })
		return nil
	})
}

// memory tests that of a level, which damage spoils.
func memory(t *testing.T, dir string, damage func() error) {
	t.Helper()
	of := func(job string) *setup {
		s := &setup{cfg: decide.Config{Job: &slurm.Job{ID: job}}}
		s.prog.Global = dir
		return s
	}
	m := of("5").recall()
	m.BegunAt, m.Seconds = time.Now(), 3
	of("5").save(m)
	if m = of("5").recall(); m.BegunAt.IsZero() || m.Safe || m.Job != "5" {
		t.Errorf("after a requeue: got %+v", m)
	}
	if m := of("6").recall(); !m.BegunAt.IsZero() || m.Seconds != 3 || m.Job != "6" {
		t.Errorf("another job: got %+v", m)
	}
	m.Safe = true
	of("5").save(m)
	if m = of("5").recall(); m.BegunAt.IsZero() || !m.Safe {
		t.Errorf("at global: got %+v", m)
	}
	if err := damage(); err != nil {
		t.Fatal(err)
	}
	if m = of("5").recall(); !m.BegunAt.IsZero() {
		t.Errorf("a damaged file: got %+v", m)
	}
}
