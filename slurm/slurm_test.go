package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// recorded returns a client that answers with files of testdata, recorded from
// Slurm 22.05 on the test bed, by the words of the command.
func recorded(t *testing.T, answers map[string]string) *Client {
	return &Client{run: func(_ context.Context, args []string) ([]byte, []byte, error) {
		file, ok := answers[strings.Join(args, " ")]
		if !ok {
			t.Errorf("unexpected command %q", args)
			return nil, []byte("unexpected\n"), fmt.Errorf("exit status 1")
		}
		b, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		return b, nil, nil
	}}
}

// recordedEnv reads a recorded environment.
func recordedEnv(t *testing.T, file string) func(string) string {
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		vars[name] = value
	}
	return func(name string) string { return vars[name] }
}

func TestFromEnv(t *testing.T) {
	batch, ok, err := FromEnv(recordedEnv(t, "batch.env"))
	want := Job{ID: "3", Name: "wrap", Partition: "main", Nodes: []string{"n1", "n2", "n3"}, Tasks: 6,
		CPUsPerNode: []int{2, 2, 2}}
	if err != nil || !ok || !reflect.DeepEqual(batch, want) {
		t.Errorf("batch: got %+v, %v, %v\nwant %+v", batch, ok, err, want)
	}
	step, ok, err := FromEnv(recordedEnv(t, "step.env"))
	if err != nil || !ok || step.Step != "1" {
		t.Errorf("step: got %+v, %v, %v", step, ok, err)
	}
	if _, ok, err := FromEnv(func(string) string { return "" }); ok || err != nil {
		t.Errorf("no job: got %v, %v", ok, err)
	}
	for name, value := range map[string]string{"SLURM_JOB_NODELIST": "n[1", "SLURM_RESTART_COUNT": "x",
		"SLURM_JOB_CPUS_PER_NODE": "2(x"} {
		_, _, err := FromEnv(func(v string) string {
			if v == name {
				return value
			}
			return map[string]string{"SLURM_JOB_ID": "1"}[v]
		})
		if err == nil || !strings.Contains(err.Error(), "variable "+name+"=") {
			t.Errorf("%s=%s: got %v, want an error that names it", name, value, err)
		}
	}
	j, _, err := FromEnv(func(v string) string {
		return map[string]string{"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2"}[v]
	})
	if err != nil || j.Restarts != 2 {
		t.Errorf("requeued: got %+v, %v", j, err)
	}
}

func TestShowJob(t *testing.T) {
	c := recorded(t, map[string]string{"scontrol show job 3": "job.txt", "scontrol show job 5": "job-unlimited.txt"})
	j, err := c.ShowJob(t.Context(), "3")
	end := time.Date(2026, 11, 20, 13, 27, 36, 0, time.Local)
	if err != nil || j.End.Sub(j.Start) != j.Limit || j.Limit == 0 || j.State != "RUNNING" || !j.MayRequeue ||
		!j.End.Equal(end) || len(j.Nodes) != 3 {
		t.Errorf("got %+v, %v", j, err)
	}
	t.Setenv("SLURM_JOB_ID", "3")
	t.Setenv("SLURM_JOB_END_TIME", "")
	if d, err := c.Deadline(t.Context(), "3"); err != nil || !d.Equal(end) {
		t.Errorf("deadline from scontrol: got %v, %v, want %v", d, err, end)
	}
	if d, err := c.Deadline(t.Context(), "5"); err != nil || !d.IsZero() {
		t.Errorf("no time limit: got %v, %v, want none", d, err)
	}
	t.Setenv("SLURM_JOB_END_TIME", "1700000000")
	if d, err := c.Deadline(t.Context(), "3"); err != nil || d.Unix() != 1700000000 {
		t.Errorf("deadline from the environment: got %v, %v", d, err)
	}
	t.Setenv("SLURM_JOB_END_TIME", "soon")
	if _, err := c.Deadline(t.Context(), "3"); err == nil {
		t.Error("a time that is none: got no error")
	}
	for _, bad := range []string{"", "JobState=RUNNING", "JobState=RUNNING Restarts=0 NodeList=n[",
		"JobState=R Restarts=0 EndTime=never"} {
		if _, err := parseJob(bad); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
}

func TestWhyNoRequeue(t *testing.T) {
	for _, c := range []struct {
		state    string
		restarts int
		ran      time.Duration // of a limit of 10 minutes; 0 = there is none
		settled  bool
	}{{"RUNNING", 2, time.Minute, false}, {"TIMEOUT", 2, 10 * time.Minute, false}, {"COMPLETING", 2, 10 * time.Minute,
		false},
		{"COMPLETING", 2, 11 * time.Minute, false}, {"COMPLETING", 2, 9 * time.Minute, true},
		{"COMPLETING", 2, 0, true},
		{"CANCELLED", 2, time.Minute, true}, {"CANCELLED by 0", 2, time.Minute, true},
		{"PREEMPTED", 2, time.Minute, true}, {"REQUEUED", 2, time.Minute, true}, {"PENDING", 2, time.Minute, true},
		{"RUNNING", 3, time.Minute, true}, {"COMPLETING", 3, 10 * time.Minute, true}} {
		j := JobInfo{State: c.state, Restarts: c.restarts, Start: time.Unix(1e9, 0), End: time.Unix(1e9, 0).Add(c.ran)}
		if c.ran > 0 {
			j.Limit = 10 * time.Minute
		}
		if why := j.WhyNoRequeue(2); (why != "") != c.settled {
			t.Errorf("%s after %v, requeued %d times: got %q, want a reason: %t", c.state, c.ran, c.restarts, why,
				c.settled)
		}
	}
}

func TestLimits(t *testing.T) {
	for s, want := range map[string]time.Duration{"00:01:00": time.Minute, "1-02:03:04": 26*time.Hour + 3*time.Minute +
		4*time.Second,
		"UNLIMITED": 0, "": 0, "Partition_Limit": 0} {
		if got, err := parseLimit(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", s, got, err, want)
		}
	}
	if _, err := parseLimit("soon"); err == nil {
		t.Error("a limit that is none: got no error")
	}
}

func TestConfig(t *testing.T) {
	c := recorded(t, map[string]string{"scontrol show config": "config.txt",
		"scontrol show partition main": "partition.txt"})
	got, err := c.Config(t.Context())
	want := Config{KillWait: 5 * time.Second, SlurmdPort: 6818}
	if err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if grace, err := c.GraceTime(t.Context(), "main"); err != nil || grace != 15*time.Second {
		t.Errorf("got a grace time of %v, %v", grace, err)
	}
	if _, err := parseConfig("KillWait = 5 sec"); err == nil {
		t.Error("a configuration without SlurmdPort: got no error")
	}
}

func TestNodeStates(t *testing.T) {
	for file, want := range map[string]map[string]bool{
		"sinfo-drain.txt":  {"n1": true, "n2": true, "n3": true, "n4": true},
		"sinfo-noresp.txt": {"n1": true, "n2": true, "n3": false},
		"sinfo-down.txt":   {"n1": true, "n2": true, "n3": false, "n9": false},
	} {
		nodes := []string{}
		for n := range want {
			nodes = append(nodes, n)
		}
		c := recorded(t, map[string]string{"sinfo -h -a -N -n " + FoldNodes(nodes) + " -o %N|%T|%E": file})
		states, err := c.NodeStates(t.Context(), nodes)
		if err != nil || len(states) != len(nodes) {
			t.Fatalf("%s: got %v, %v", file, states, err)
		}
		for i, s := range states {
			if s.Name != nodes[i] || s.Usable() != want[s.Name] {
				t.Errorf("%s: %+v: usable %t, want %t", file, s, s.Usable(), want[s.Name])
			}
		}
	}
	for state, usable := range map[string]bool{"idle": true, "allocated": true, "draining": true, "mixed-": true,
		"reserved": true, "maint": true,
		"idle*": false, "down": false, "down*": false, "idle~": false, "idle#": true, "fail": false, "failing": false,
		"powered_down": false, "reboot": false, "unknown*": false} {
		s := parseStates("n1|" + state + "|none\n")
		if len(s) != 1 || s["n1"].Usable() != usable {
			t.Errorf("%s: got %+v, want usable %t", state, s, usable)
		}
	}
	if s := parseStates("n4|drained|bad disk | replace\n"); s["n4"].Reason != "bad disk | replace" {
		t.Errorf("got reason %q", s["n4"].Reason)
	}
}

func TestNodeAddrs(t *testing.T) {
	c := recorded(t, map[string]string{"scontrol -o show node n[1-3]": "nodes.txt"})
	got, err := c.NodeAddrs(t.Context(), []string{"n1", "n2", "n3"})
	want := map[string]string{"n1": "10.88.0.11", "n2": "10.88.0.12", "n3": "10.88.0.13"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestWarnings(t *testing.T) {
	for s, want := range map[string]Warning{
		"USR1@30":    {"USR1", false, 30 * time.Second},
		"B:USR1@300": {"USR1", true, 300 * time.Second},
		"RB:SIGTERM": {"TERM", true, time.Minute},
		"B:10@5":     {"USR1", true, 5 * time.Second},
	} {
		if got, ok := ParseWarning(s); !ok || got != want {
			t.Errorf("%s: got %+v, %t, want %+v", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "@30", "USR1@x", "B:"} {
		if got, ok := ParseWarning(s); ok {
			t.Errorf("%q: got %+v", s, got)
		}
	}
	script := "#!/bin/bash\n#SBATCH -N4 --signal=B:USR1@30\n#SBATCH --signal USR2@40\n\nset -e\n#SBATCH " +
		"--signal=TERM@1\n"
	if w, ok := scriptWarning(script); !ok || w != (Warning{"USR2", false, 40 * time.Second}) {
		t.Errorf("got %+v, %t, want the last before the first command", w, ok)
	}
	if _, ok := scriptWarning("#!/bin/sh\necho --signal=USR1@3\n"); ok {
		t.Error("a script without --signal has one")
	}
}

// TestCommands: what goes wrong with a command is in its error.
func TestCommands(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	install := func(name, body string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := &Client{Timeout: 30 * time.Second}
	install("scontrol", `echo "Requested operation is presently disabled for job $2" >&2; echo more >&2; exit 1`)
	var command *CommandError
	err := c.Requeue(t.Context(), "12", 3)
	if !errors.As(err, &command) || Temporary(err) || !strings.Contains(err.Error(), "submit the script again") ||
		command.Stderr != "Requested operation is presently disabled for job 12; more" {
		t.Errorf("requeue refused: got %v", err)
	}
	for restarts, done := range map[string]bool{"4": true, "3": false} { // it is COMPLETING at the time limit, too
		left := filepath.Join(dir, "left")
		if err := os.WriteFile(left, []byte("11"), 0o600); err != nil { // a byte for each signal
			t.Fatal(err)
		}
		install("scontrol", `[ $1 = show ] && [ $(wc -c < `+left+`) = 0 ] && exec echo JobState=COMPLETING Restarts=`+
			restarts+`
[ $1 = show ] && truncate -s -1 `+left+`
kill -TERM $$`)
		if err := c.Requeue(t.Context(), "12", 3); (err == nil) != done {
			t.Errorf("requeue ended by a signal, and %s restarts of 3: got %v, want success: %t", restarts, err, done)
		}
	}
	install("scontrol", `kill -TERM $$`)
	if _, err := c.ShowJob(t.Context(), "12"); err == nil || !Temporary(err) {
		t.Errorf("signals without end: got %v, want an error that may pass", err)
	}
	install("scancel", `echo "$@" > `+dir+`/args`)
	if err := c.Signal(t.Context(), "3.0", "USR1"); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(dir + "/args"); string(b) != "--signal=USR1 3.0\n" {
		t.Errorf("got arguments %q of scancel", b)
	}
	install("scontrol", "exec sleep 100")
	fast := &Client{Timeout: 50 * time.Millisecond}
	if _, err := fast.ShowJob(t.Context(), "1"); !errors.Is(err, ErrTimeout) {
		t.Errorf("a command that hangs: got %v, want ErrTimeout", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fast.ShowJob(ctx, "1"); err == nil || errors.Is(err, ErrTimeout) {
		t.Errorf("a cancelled call: got %v, want another error than ErrTimeout", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := c.ShowJob(t.Context(), "1"); !errors.Is(err, ErrNoSlurm) {
		t.Errorf("no Slurm: got %v, want ErrNoSlurm", err)
	}
	if _, err := exec.LookPath("scontrol"); err == nil {
		t.Error("scontrol is in an empty PATH")
	}
}
