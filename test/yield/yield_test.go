package yield

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// dirEnv makes the test binary a rank; the others are at that directory.
const dirEnv = "HOLDFAST_YIELD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirEnv); dir != "" {
		if err := rank(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rank is a rank that waits for a message while rank 0 looks how it does so.
func rank(dir string) error {
	w, err := mpiwrap.Init(mpiwrap.Options{})
	if err != nil {
		return err
	}
	one := []byte{0}
	if w.Rank() == 1 {
		if err := os.WriteFile(filepath.Join(dir, "pid"), fmt.Append(nil, os.Getpid()), 0o644); err != nil {
			return err
		}
		if _, err := mpiwrap.Recv(w, one, 0, 0); err != nil {
			return err
		}
		return mpiwrap.Finalize()
	}
	looked := look(filepath.Join(dir, "pid"))
	if err := mpiwrap.Send(w, one, 1, 0); err != nil {
		return err
	}
	if looked != nil {
		return looked
	}
	return mpiwrap.Finalize()
}

var (
	gave  = regexp.MustCompile(`(?m)^voluntary_ctxt_switches:\s*(\d+)$`)
	spent = 2 * time.Second
)

// look waits until the main thread of a process has slept often, or has used much processor
// time without doing so.
func look(pidFile string) error {
	for ; ; time.Sleep(time.Millisecond) {
		pid, err := os.ReadFile(pidFile)
		if err != nil || len(pid) == 0 {
			continue // not yet there
		}
		tasks, err := filepath.Glob("/proc/" + string(pid) + "/task/*/status")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			status, err := os.ReadFile(task)
			if err != nil {
				return err
			}
			m := gave.FindSubmatch(status)
			if m == nil {
				return fmt.Errorf("no count of switches in %s", task)
			}
			if n, err := strconv.Atoi(string(m[1])); err != nil || n > 2000 {
				return err
			}
		}
		if used, err := processorTime(string(pid)); err != nil || used > spent {
			return fmt.Errorf("process %s used %v and has not slept often; %v", pid, used, err)
		}
	}
}

// processorTime returns what a process has used.
func processorTime(pid string) (time.Duration, error) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// TestWaitingRankSleeps: a rank that waits for a message sleeps between its looks for it.
func TestWaitingRankSleeps(t *testing.T) {
	lib := filepath.Join(t.TempDir(), "yield.so")
	if err := Build(lib); err != nil {
		t.Skip(err)
	}
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) {
			if err := l.Available(); err != nil {
				t.Skip(err)
			}
			j := l.Job(2, time.Minute, os.Args[0])
			j.Env = []string{dirEnv + "=" + t.TempDir(), OpenMPI, Preload(lib)}
			if out, err := j.CombinedOutput(t.Context()); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
