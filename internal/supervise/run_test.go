package supervise

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

func TestParseSrun(t *testing.T) {
	c, err := parseCommand(strings.Fields("srun --mpi=pmix -K -vv -N3-4 -n 6 --export ALL -c2 --ntasks-per-node=2 -l " +
		"./app -n 9 --mpi=none"))
	if err != nil {
		t.Fatal(err)
	}
	if c.kind != launchSrun || c.tasks != 6 || c.nodes != 3 || c.each != 2 || c.cpus != 2 || c.plugin != "pmix" ||
		strings.Join(c.prog, " ") != "./app -n 9 --mpi=none" {
		t.Errorf("got %+v", c)
	}
	got := strings.Join(c.onNodes([]string{"n1", "n3"}, []string{"n2"}, 6, 4), " ")
	want := "srun --mpi=pmix -K -vv -N3-4 -n 6 --export ALL -c2 --ntasks-per-node=2 -l --overlap -N 2 -n 6 -w n1,n3 " +
		"-x n2 --ntasks-per-node=3 --overcommit ./app -n 9 --mpi=none"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, bad := range []string{"srun", "srun -n", "srun -n x ./app", "srun -N0 ./app", "srun --het-group=0,1 ./app",
		"srun -n2 ./a : -n3 ./b"} {
		if _, err := parseCommand(strings.Fields(bad)); err == nil {
			t.Errorf("%s: got no error", bad)
		}
	}
	if c, err := parseCommand(strings.Fields("srun -- ./app -x")); err != nil || c.prog[0] != "./app" {
		t.Errorf("--: got %+v, %v", c, err)
	}
}

func TestParseMpirun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("# machines\nn1 slots=2\nn2:4\n\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, nodes, want string }{
		{"mpirun.openmpi --hostfile " + file + " --mca btl self,tcp -np 4 -x A ./app -host z", "n1 n2",
			"mpirun.openmpi -x HOLDFAST_B --host n1:2,n2:2 --oversubscribe --mca btl self,tcp -np 4 -x A ./app " +
				"-host z"},
		{"mpirun.openmpi --host n1,n2 -N 1 ./app", "n2", "mpirun.openmpi -x A -x HOLDFAST_B --host n2:1 " +
			"--oversubscribe ./app"},
		{"mpiexec.mpich -f " + file + " -genv A 1 -n 6 ./app", "n1 n2", "mpiexec.mpich -hosts n1:3,n2:3 -genv A 1 -n " +
			"6 ./app"},
		{"mpiexec.mpich -ppn 2 -n 4 ./app", "", "mpiexec.mpich -ppn 2 -n 4 ./app"},
		{"mpirun.openmpi -np 2 ./app : -np 1 ./b", "", "mpirun.openmpi -x A -x HOLDFAST_B -np 2 ./app : -np 1 ./b"},
	} {
		cmd, err := parseCommand(strings.Fields(c.line))
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if got := strings.Join(cmd.onHosts(strings.Fields(c.nodes), []string{"A", "HOLDFAST_B"}), " "); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.line, got, c.want)
		}
	}
	for _, bad := range []string{"mpirun.openmpi -np x ./app", "mpirun.openmpi --hostfile /nosuch ./app",
		"mpiexec.mpich -ppn x ./app"} {
		if _, err := parseCommand(strings.Fields(bad)); err == nil {
			t.Errorf("%s: got no error", bad)
		}
	}
}

// TestSuspended: a job that stood still for an hour has not been stuck for it.
func TestSuspended(t *testing.T) {
	flags := Options{Stall: time.Minute, EndTimeout: time.Minute, StartTimeout: time.Minute}
	before := time.Now().Add(-time.Hour)
	for _, last := range []coordinated.Report{{Ready: true}, {Ended: true}, {}} {
		a := &attempt{r: &runner{cmd: &command{}, flags: flags, stderr: io.Discard}, last: last, opened: last.Ready,
			startedAt: before, stuckAt: before, awakeAt: before}
		a.awake(time.Now())
		if why := a.overdue(t.Context()); why != "" {
			t.Errorf("%+v: got %q", last, why)
		}
		a.startedAt, a.stuckAt = before, before // it is awake and stuck
		a.awake(time.Now())
		if why := a.overdue(t.Context()); why == "" {
			t.Errorf("%+v: a program that is stuck goes on", last)
		}
	}
}

// TestDeserted: a rank that died is not forgotten because the launcher ended with 0.
func TestDeserted(t *testing.T) {
	for _, c := range []struct {
		line   string
		last   coordinated.Report
		opened bool
		want   bool
	}{
		{"mpirun.openmpi --enable-recovery -np 2 ./app", coordinated.Report{}, true, true},
		{"mpirun.openmpi --mca orte_enable_recovery 1 -np 2 ./app", coordinated.Report{}, true, true},
		{"mpirun.openmpi --enable-recovery -np 2 ./app", coordinated.Report{Ended: true}, true, false},
		{"mpirun.openmpi --enable-recovery -np 2 ./app", coordinated.Report{}, false, false},
		{"mpirun.openmpi -np 2 ./app", coordinated.Report{}, true, false}, // it never calls Close
		{"srun -n2 ./app", coordinated.Report{Lost: &coordinated.LostStatus{}}, true, true},
	} {
		cmd, err := parseCommand(strings.Fields(c.line))
		if err != nil {
			t.Fatal(err)
		}
		a := &attempt{r: &runner{cmd: cmd}, last: c.last, opened: c.opened}
		if got := a.deserted(); got != c.want {
			t.Errorf("%s, %+v: got %t, want %t", c.line, c.last, got, c.want)
		}
	}
}

// TestStaysFresh: starts go on restoring nothing until one has an epoch of its own.
func TestStaysFresh(t *testing.T) {
	fresh := func(r *runner) bool { return slices.Contains(r.vars(nil), "HOLDFAST_FRESH=1") }
	r := &runner{cmd: &command{}, flags: Options{MaxRestarts: 9, Backoff: time.Microsecond, BeginAnew: time.Hour},
		stderr: io.Discard, dead: map[string]string{}, deaths: map[storage.Epoch]int{}}
	fails := func(nodeDied bool, reports ...coordinated.Report) {
		r.starts++
		a := &attempt{r: r, examined: make(chan struct{}), nodeDied: nodeDied}
		close(a.examined)
		for _, rep := range reports {
			a.hear(heard{rep: rep, at: time.Now()})
		}
		if code, over := r.again(t.Context(), a); over {
			t.Fatalf("over with code %d", code)
		}
	}
	ready := coordinated.Report{Ready: true}
	local := coordinated.Report{Ready: true, Committed: map[string]storage.Epoch{"local": 1}}
	if fails(true, ready, local); fresh(r) {
		t.Error("a node died: what is left is to be looked at first")
	}
	if fails(false, coordinated.Report{Unrestorable: "rank 2 finds none", Missing: true, Ended: true}); !fresh(r) {
		t.Error("a node died with the only checkpoint: want a fresh start")
	}
	patience := r.startTimeout()
	if fails(false); r.startTimeout() != 2*patience {
		t.Errorf("after %v were not enough got %v, want twice that", patience, r.startTimeout())
	}
	if fails(false); !fresh(r) {
		t.Error("the fresh start did not come to Open: want another fresh one")
	}
	if fails(false, ready); !fresh(r) {
		t.Error("the fresh start committed nothing: want another fresh one")
	}
	if fails(false, ready, local); fresh(r) {
		t.Error("all nodes are there with a checkpoint: it is to be restored")
	}
}

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
		r := &runner{cmd: cmd, stderr: io.Discard, flags: Options{Spares: 1},
			job: &slurm.Job{ID: "5", Restarts: c.restarts}}
		if c.restarts > 0 {
			r.mem.Width, r.mem.Tasks = 4, 16
		}
		for i := range c.have {
			r.nodes = append(r.nodes, fmt.Sprint("n", i))
		}
		if err := r.size(); err != nil || r.width != c.width || r.tasks != c.tasks || r.flags.Spares != c.spares {
			t.Errorf("%+v: got %d nodes, %d ranks, %d spare, %v", c, r.width, r.tasks, r.flags.Spares, err)
		}
		r.starts = 1
		if given := r.asGiven(); given {
			t.Errorf("%+v: started as it was given", c)
		}
		if r.mem.Width != 4 && c.have < 5 || r.mem.Tasks == 0 {
			t.Errorf("%+v: it forgets that it had %d nodes and %d ranks", c, r.mem.Width, r.mem.Tasks)
		}
	}
}

// TestChoose: nodes that ran before come before spare ones, in the order of the
// allocation.
func TestChoose(t *testing.T) {
	r := &runner{nodes: []string{"a", "b", "c", "d"}, width: 3, dead: map[string]string{}, stderr: &bytes.Buffer{},
		flags: Options{MinNodes: 2}}
	pick := func(want string) {
		t.Helper()
		got, err := r.choose()
		if text := strings.Join(got, ""); text != want || (err != nil) != (want == "") {
			t.Errorf("got %s, %v, want %s", text, err, want)
		}
		r.used = got
		r.starts++
	}
	pick("abc")
	r.dead["b"] = "is dead"
	pick("acd")
	r.dead["a"] = "is dead"
	pick("cd")
	delete(r.dead, "b")
	pick("bcd")
	r.dead["b"], r.dead["c"] = "is dead", "is dead"
	pick("")
}

// TestProbe: a connection tells a machine that is up from one that is not.
func TestProbe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{addrs: map[string]string{"x": "127.0.0.1"}}
	if why := r.probe(t.Context(), "x", true, afterDeath); why != "" {
		t.Errorf("a machine that answers: got %q", why)
	}
	r.job = &slurm.Job{}
	r.conf.SlurmdPort = l.Addr().(*net.TCPAddr).Port
	if why := r.probe(t.Context(), "x", false, afterDeath); why != "" {
		t.Errorf("a node with slurmd: got %q", why)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if why := r.probe(t.Context(), "x", false, afterDeath); why != "runs no slurmd" {
		t.Errorf("a node without slurmd: got %q", why)
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
	r := &runner{cmd: &command{}, job: &slurm.Job{ID: "5"}, flags: Options{Requeue: true}, stderr: io.Discard}
	if err := r.readJob(t.Context()); err != nil || !r.deadline.Equal(end) || r.lead != 200*time.Second {
		t.Errorf("got %v, the limit at %v and a lead of %v, want %v and 200s", err, r.deadline, r.lead, end)
	}
}

// TestWarnedEarly: a signal that announces the end before the program computes is
// not lost: the final checkpoint is due as soon as it does. So it is when Slurm does
// not answer at that moment.
func TestWarnedEarly(t *testing.T) {
	end := time.Now().Add(50 * time.Second)
	for _, answer := range []string{"echo JobState=RUNNING Restarts=0 EndTime=" + end.Format("2006-01-02T15:04:05"),
		"exit 1"} {
		commands(t, map[string]string{"scontrol": answer})
		r := &runner{job: &slurm.Job{ID: "5"}, stderr: io.Discard, warning: slurm.Warning{Signal: "USR1", Batch: true,
			Lead: 30 * time.Second}}
		r.conf.KillWait = 30 * time.Second
		r.deadline = end
		a := &attempt{r: r, proc: &exec.Cmd{Process: &os.Process{}}} // that is passed nothing
		r.signalled(t.Context(), a, syscall.SIGUSR1)
		if left := time.Until(r.deadline); r.stopping || left > 50*time.Second || left < 40*time.Second ||
			r.lead == 0 || !time.Now().After(r.deadline.Add(-r.lead)) {
			t.Errorf("%s: stopping: %t, %v are left, the lead is %v", answer, r.stopping, left, r.lead)
		}
	}
}

// failing is a file that takes nothing.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestPauseKeeps: a signal that comes between two starts is there for the next one.
func TestPauseKeeps(t *testing.T) {
	r := &runner{stderr: io.Discard, signals: make(chan os.Signal, 4)}
	r.signals <- syscall.SIGUSR1
	if !r.pause(200*time.Millisecond) || len(r.signals) != 1 {
		t.Errorf("%d signals are kept, want 1", len(r.signals))
	}
	r.signals <- syscall.SIGTERM
	if r.pause(time.Hour) {
		t.Error("TERM does not end the pause")
	}
}

// TestFallen: what srun writes goes through, and the first task that ended with an
// error is found however the text comes in pieces.
func TestFallen(t *testing.T) {
	text := "n1: task 3: Killed\nsrun: error: Node failure on n2\n" + strings.Repeat("x", 3*longestLine) +
		"srun: error: n4: task 4: Killed\n" +
		"srun: error: n3: tasks 2,4-5: Exited with exit code 2\nsrun: error: n4: task 6: Killed\n"
	for size := 1; size < len(text); size = 3*size + 1 {
		var out bytes.Buffer
		f := &fallen{w: &out}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if _, err := f.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		full := &fallen{w: failing{}} // the disk of the log is full
		if n, err := full.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("on a full disk: got %d, %v", n, err)
		}
		at, node, why := f.first()
		if at.IsZero() || node != "n3" || why != "tasks 2,4-5: Exited with exit code 2 (node n3)" ||
			out.String() != text {
			t.Errorf("pieces of %d: got %v, %q, %q", size, at, node, why)
		}
	}
}

// TestPmixVars: direct connections of the plugin are switched off only where the
// nodes of the step are known, and said.
func TestPmixVars(t *testing.T) {
	const off = "SLURM_PMIX_DIRECT_CONN=false"
	for _, c := range []struct {
		line   string
		env    string // variable that the user has set
		starts int
		nodes  string
		want   string
	}{
		{"srun -n4 ./app", "", 1, "a b c", off},
		{"srun -n4 -m block:cyclic ./app", "", 1, "a b c", off},
		{"srun -n4 -m arbitrary ./app", "", 1, "a b c", ""},
		{"srun -N2 -n4 ./app", "", 1, "a b", ""},
		{"srun -n4 -x a ./app", "", 1, "a b c", ""},
		{"srun -n4 --nodelist=a ./app", "", 1, "a b c", ""},
		{"srun -N3 -n4 ./app", "SLURM_HOSTFILE", 1, "a b c", ""},
		{"srun -N3 -n4 ./app", "SLURM_PMIX_FENCE", 1, "a b c", ""},
		{"srun -N2 -n4 -x a ./app", "", 2, "a c", "SLURM_JOB_NODELIST=a,c " + off},
		{"srun -N2 -n4 ./app", "SLURM_PMIX_DIRECT_CONN", 2, "a c", "SLURM_JOB_NODELIST=a,c"},
		{"mpirun.openmpi -np 4 ./app", "", 2, "a c", ""},
	} {
		t.Run(c.line, func(t *testing.T) {
			if c.env != "" {
				t.Setenv(c.env, "x")
			}
			cmd, err := parseCommand(strings.Fields(c.line))
			if err != nil {
				t.Fatal(err)
			}
			r := &runner{cmd: cmd, job: &slurm.Job{}, nodes: []string{"a", "b", "c"}, starts: c.starts}
			if got := strings.Join(r.pmixVars(strings.Fields(c.nodes)), " "); got != c.want {
				t.Errorf("start %d on %s: got %q, want %q", c.starts, c.nodes, got, c.want)
			}
		})
	}
}

// TestAcquit: where Slurm starts nothing on a node that lives either, no other is
// blamed.
func TestAcquit(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	lim := limits{time.Second, 5 * time.Second}
	hangs, fails, well := "exec sleep 100", "exit 1", "exit 0"
	blame := startsNothing + " within 1s"
	for _, c := range []struct {
		name, srun string
		nodes, why []string
		blamed     bool
	}{
		{"Slurm does not answer", hangs, []string{host, "x"}, []string{"", blame}, false},
		{"Slurm refuses", fails, []string{"x", host}, []string{startsNothing + ": no", ""}, false},
		{"this node starts a step", well, []string{host, "x"}, []string{"", blame}, true},
		{"another node does", well, []string{"x", "y"}, []string{blame, ""}, true},
		{"another node does not", fails, []string{"x", "y"}, []string{blame, ""}, false},
		{"no node is left to compare with", well, []string{"x", "y"}, []string{blame, blame}, false},
		{"it does not even answer", fails, []string{host, "x"}, []string{"", "does not answer"}, true},
	} {
		commands(t, map[string]string{"srun": c.srun})
		r := &runner{nodes: c.nodes, stderr: io.Discard}
		r.acquit(t.Context(), c.why, lim)
		if blamed := c.why[0]+c.why[1] != ""; blamed != c.blamed {
			t.Errorf("%s: a node is blamed: %t, want %t", c.name, blamed, c.blamed)
		}
	}
}

// TestLeft: a job that ended before it computed is not put back into the queue, or
// it would go round for ever; one that gave way to another is.
func TestLeft(t *testing.T) {
	for _, c := range []struct {
		preempted string
		says      string
	}{{"None", "did not come to compute"}, {"2026-11-21T20:00:00", "job 5 requeued"}} {
		commands(t,
			map[string]string{"scontrol": `[ "$1" = requeue ] || echo "JobState=RUNNING Restarts=0 PreemptTime=` +
				c.preempted + `"`})
		errs := &lockedBuffer{}
		r := &runner{job: &slurm.Job{ID: "5"}, flags: Options{Requeue: true}, stderr: errs}
		if code := r.left(t.Context(), ExitStopped); code != ExitStopped || !strings.Contains(errs.String(), c.says) {
			t.Errorf("preempted %s: got code %d, want %q\n%s", c.preempted, code, c.says, errs)
		}
	}
}

// TestPreempted: ranks that were sent TERM have the whole GraceTime where the job
// gives way to another, and what KillWait leaves where Slurm does not say so.
func TestPreempted(t *testing.T) {
	now := time.Now().Format("2006-01-02T15:04:05")
	for _, c := range []struct {
		name, scontrol string
		least          time.Duration
		why, says      string
	}{
		{"preempted", "echo JobState=RUNNING Restarts=0 PreemptTime=" + now, 50 * time.Minute,
			"the job is being preempted", ""},
		{"a signal by hand", "echo JobState=RUNNING Restarts=0", 0, "", ""},
		{"no answer", "exit 1", 0, "", "it is not known whether the job is being preempted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			commands(t, map[string]string{"scontrol": c.scontrol})
			errs := &lockedBuffer{}
			r := &runner{job: &slurm.Job{ID: "5"}, stderr: errs, graceTime: time.Hour}
			within, why := r.ending(t.Context())
			if within < c.least || within > time.Hour || (within > 0) != (c.least > 0) || why != c.why ||
				!strings.Contains(errs.String(), c.says) {
				t.Errorf("got %v, %q, want %q\n%s", within, why, c.why, errs)
			}
		})
	}
}
