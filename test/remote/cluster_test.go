package remote

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/test/cluster"
)

// TestAcrossNodes serves devices of emulated nodes as steps of a Slurm job: the
// conformance suite passes from another node, a program moves from node to node,
// and it notices when the node of its device is cut off, as does the server.
func TestAcrossNodes(t *testing.T) {
	pocl(t)
	if testing.Short() {
		t.Skip("starts a Slurm")
	}
	c := cluster.Up(t, 3, vendors(nil)...)
	tools := c.Install(t, "../../cmd/holdfast", "../../apps/nbody")
	suite := filepath.Join(c.PFS(), "suite")
	build := exec.Command("go", "test", "-c", "-vet=off", "-o", suite, "../../gpustate/gputest")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	key := cluster.Shared + "/gpud.key"
	addrs := offer(t, c, tools, key)
	if len(addrs) != 2 {
		t.Fatalf("got the addresses %v, want two", addrs)
	}

	// the suite looks there for the server of this platform
	if err := os.WriteFile(filepath.Join(c.PFS(), "remote-tcp-pocl.addr"), []byte(addrs["n1"]), 0o600); err != nil {
		t.Fatal(err)
	}
	out := c.Run(t, "srun", "-w", "n3", "--overlap", "env", "HOLDFAST_GPUTEST_ROLE=suite",
		"HOLDFAST_GPUTEST_PLATFORM=remote:tcp:pocl",
		"HOLDFAST_GPUTEST_DIR="+cluster.Shared, cluster.Shared+"/suite", "-test.run=^TestSuite$", "-test.short",
		"-programs=1")
	if !strings.Contains(out, "PASS") {
		t.Errorf("the suite says\n%s", out)
	}

	// without end, so that it is there when its device goes
	app := c.Command(t.Context(), "srun", "-w", "n3", "--overlap", "env", "HOLDFAST_GPUD_KEY="+key, tools+"/nbody",
		"-ranks", "1",
		"-plummer", "1024", "-steps", "100000000", "-progress", "0", "-device", "remote="+addrs["n1"]+",pocl")
	text := &log{}
	app.Stdout, app.Stderr = text, text
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Wait() }()
	moved := false
	for deadline := time.Now().Add(hard); !moved && time.Now().Before(deadline); {
		out, err := c.Try(t, "srun", "-w", "n3", "--overlap", tools+"/holdfast", "migrate", "--key", key, addrs["n1"],
			"nbody", addrs["n2"])
		moved = err == nil && strings.Contains(out, "moved to remote="+addrs["n2"])
	}
	if !moved {
		t.Fatalf("the program was not moved\n%s", text)
	}
	c.Verb(t, "cut", "n2") // silence, no goodbye: each side waits for the other
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(text.String(), "GPU server "+addrs["n2"]+" is lost") {
			t.Errorf("got %v, want the server named\n%s", err, text)
		}
	case <-time.After(hard):
		t.Errorf("the program does not notice\n%s", text)
	}
	// The server notices, too. It is asked on its node: Slurm ends it there as soon
	// as it reaches the node again.
	ask := tools + "/holdfast gpud --key " + key + " --json --status " + addrs["n2"] + " >" + cluster.Shared + "/status"
	for deadline := time.Now().Add(hard); ; {
		err := c.TryVerb("run-on", "n2", "sh", "-c", ask)
		out, rerr := os.ReadFile(filepath.Join(c.PFS(), "status"))
		if err == nil && rerr == nil && strings.Contains(string(out), `"clients":[]`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server still has the program that was cut off: %v, %v\n%s", err, rerr, out)
		}
	}
}

// offer starts a server on n1 and one on n2 as a step of a job and gives their
// addresses.
func offer(t *testing.T, c *cluster.Cluster, tools, key string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	addrs := map[string]string{}
	for _, node := range []string{"n1", "n2"} {
		cmd := c.Command(ctx, "srun", "-w", node, "--overlap", "--unbuffered", tools+"/holdfast", "gpud",
			"--listen", "eth0:7478", "--key", key, "--device", "pocl")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		errs := &log{}
		cmd.Stderr = errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewScanner(out)
		for in.Scan() {
			if a, ok := strings.CutPrefix(in.Text(), "gpud: listens at "); ok {
				addrs[node] = a
				break
			}
		}
		if addrs[node] == "" {
			t.Fatalf("the server on %s did not start\n%s", node, errs)
		}
		go func() {
			for in.Scan() {
			}
			_ = cmd.Wait() // it dies with its node or with the cluster
		}()
	}
	return addrs
}
