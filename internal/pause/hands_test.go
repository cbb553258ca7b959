package pause

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/opencl"
)

// TestOpenCLRanks: the hands of a node name the programs of their run that use OpenCL, and no others.
func TestOpenCLRanks(t *testing.T) {
	if openCLPrefix != opencl.DoorPrefix {
		t.Fatalf("programs of OpenCL are at %q", opencl.DoorPrefix)
	}
	var want []int
	for _, supervisor := range []string{"127.0.0.1:9 key", "127.0.0.1:99 key"} {
		c := exec.CommandContext(t.Context(), "sleep", "60")
		c.Env = append(os.Environ(), config.SupervisorVar+"="+supervisor)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", opencl.DoorPrefix+child.Name(c.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		want = append(want, c.Process.Pid)
	}
	if h := doors(t.Context(), "127.0.0.1:9 other", "n1", Visit{Visit: 1}); h.Error != "" || h.Doors != 0 ||
		!slices.Equal(h.OpenCL, want[:1]) {
		t.Errorf("got %+v, want %d", h, want[:1])
	}
}

// TestLeast: the control group of a job limits what its ranks can have, that of one rank alone does not.
func TestLeast(t *testing.T) {
	for _, c := range []struct {
		limits []map[string]int64
		want   int64
	}{
		{nil, 100},
		{[]map[string]int64{{"job": 40, "a": 30}, {"job": 40, "b": 20}}, 40},
		{[]map[string]int64{{"job": -3}}, 1},
		{[]map[string]int64{{"job": 400}}, 100},
	} {
		if got := least(100, c.limits); got != c.want {
			t.Errorf("%v: got %d, want %d", c.limits, got, c.want)
		}
	}
}
