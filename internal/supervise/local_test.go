package supervise

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// onEach is an srun that runs its command on this machine.
const onEach = `while [ "$1" != /bin/sh ]; do shift; done
"$@"`

// localRun returns a run of a job with a directory below base on each node.
func localRun(t *testing.T, id, base, global string) (*setup, *testbuf.Buffer) {
	t.Helper()
	t.Setenv("HOLDFAST_LOCAL", "") // and back at the end
	errs := &testbuf.Buffer{}
	s := &setup{log: &log{w: errs}, opt: Options{LocalIn: base},
		cfg: decide.Config{Job: &slurm.Job{ID: id, Nodes: []string{"n1"}}}}
	s.prog.Global = global
	s.cfg.Memory = s.recall()
	if err := s.nodeLocal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := os.Getenv("HOLDFAST_LOCAL"); got != s.prog.Local {
		t.Errorf("the program gets %q, and the run has %q", got, s.prog.Local)
	}
	return s, errs
}

// TestNodeLocal: a job gets a directory that only its user can read, under a name of its own,
// and the same one when it is requeued, with a global directory or without.
func TestNodeLocal(t *testing.T) {
	commands(t, map[string]string{"srun": onEach})
	for _, global := range []string{t.TempDir(), ""} {
		base := t.TempDir()
		first, errs := localRun(t, "5", base, global)
		info, err := os.Stat(first.prog.Local)
		if err != nil || info.Mode().Perm() != 0o700 || !strings.HasPrefix(first.prog.Local, base+"/holdfast-5-") {
			t.Errorf("got %s, %v\n%s", first.prog.Local, err, errs)
		}
		if second, _ := localRun(t, "5", base, global); second.prog.Local != first.prog.Local {
			t.Errorf("the requeued job has %s, it had %s", second.prog.Local, first.prog.Local)
		}
		if other, _ := localRun(t, "6", base, global); strings.HasPrefix(other.prog.Local, base+"/holdfast-5-") {
			t.Errorf("another job has %s", other.prog.Local)
		}
	}
	s := &setup{opt: Options{LocalIn: t.TempDir()}}
	if err := s.nodeLocal(t.Context()); err == nil || !strings.Contains(err.Error(), "HOLDFAST_LOCAL") {
		t.Errorf("no Slurm job: got %v", err)
	}
}

// TestNameTakenElsewhere: somebody who has seen the name on one node and takes it on another does not
// stop the job. A directory that the user has named is not exchanged for another.
func TestNameTakenElsewhere(t *testing.T) {
	commands(t, map[string]string{"srun": onEach})
	base, global := t.TempDir(), t.TempDir()
	first, _ := localRun(t, "5", base, global)
	taken := first.prog.Local
	if err := os.Remove(taken); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second, errs := localRun(t, "5", base, global)
	if info, err := os.Stat(second.prog.Local); err != nil || !info.IsDir() || second.prog.Local == taken {
		t.Errorf("got %s, %v\n%s", second.prog.Local, err, errs)
	}
	s := &setup{log: &log{w: errs}, opt: Options{LocalIn: base},
		cfg: decide.Config{Job: &slurm.Job{ID: "5", Nodes: []string{"n1"}}}}
	s.prog.Local = taken
	if err := s.nodeLocal(t.Context()); err != nil || s.prog.Local != taken ||
		!strings.Contains(errs.String(), taken+" is not a directory of this user") {
		t.Errorf("got %s, %v\n%s", s.prog.Local, err, errs)
	}
}

// TestMakeLocal: directories and links of other users are refused, unless they are allowed.
func TestMakeLocal(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make directories of others")
	}
	own, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	if err := os.Mkdir(other, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(other, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(link, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir, allow string
		good       bool
	}{{own, "", true}, {other, "", false}, {link, "", false}, {other, "true", true}} {
		if err := exec.Command("/bin/sh", "-c", makeLocal, "-", c.dir, c.allow).Run(); (err == nil) != c.good {
			t.Errorf("%s, allowed %q: got %v", c.dir, c.allow, err)
		}
	}
}

// TestSalvageFails: nodes that have nothing leave nothing at global. TestSalvage of the verb run
// shows some that have.
func TestSalvageFails(t *testing.T) {
	commands(t, map[string]string{"srun": "exit 0"})
	s := &setup{cfg: decide.Config{Job: &slurm.Job{ID: "5"}}}
	s.prog.Local, s.prog.Global = t.TempDir(), t.TempDir()
	_, err := s.salvage(t.Context(), decide.Salvage{Nodes: []string{"n2"}, Within: time.Minute})
	if err == nil {
		t.Error("got no error")
	}
	if rest, _ := os.ReadDir(s.prog.Global); len(rest) > 0 {
		t.Errorf("it left %v", rest)
	}
}
