package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSurvivorsLeave stops a rank with SIGSTOP, which neither launcher notices,
// and kills one: the others leave by themselves and name it.
func TestSurvivorsLeave(t *testing.T) {
	forEachMPI(t, func(t *testing.T, mpi int) {
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			d := newDirs(t)
			j := &job{mpi: mpi, ranks: 3, args: []string{"-shape", "stencil", "-steps", "1000", "-result", d.result,
				"-hold", d.result + ".go"},
				// a rank that only waits for a core is not silent so long
				env: d.env("HOLDFAST_CONTROL_PEER_TIMEOUT=5s")}
			if mpi == 0 {
				j.launcher = []string{"--enable-recovery"} // or Open MPI would end them first
			}
			j.start(t)
			j.ready(t)
			j.signal(1, sig)
			begin := time.Now()
			j.until(t, func() bool { return strings.Contains(j.output(), "rank 1 on node") })
			t.Logf("%v: named after %v", sig, time.Since(begin).Round(time.Millisecond))
			// hydra ends the survivors of a killed rank itself, at times before they can
			// say anything; they go on when it is only stopped.
			if out := j.output(); !strings.Contains(out, "rank 1 on node") && (mpi == 0 || sig == syscall.SIGSTOP) {
				t.Errorf("%v: nobody names the lost rank:\n%s", sig, out)
			}
			j.signal(1, syscall.SIGKILL)
			j.wait() // its exit code proves nothing: 0 under --enable-recovery
			if fileExists(d.result) {
				t.Errorf("%v: the job ended as if nothing had happened:\n%s", sig, j.output())
			}
		}
	})
}
