package supervise

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
)

// The programs of TestNoneLeft, in a directory of their own. A rank that stays, in the first start, and says who its
// parent is; an mpirun that starts a process and collects nothing.
const (
	rankOnce = `#!/bin/sh
set -e
cd "${0%/*}"
[ -e again ] && exit
echo $PPID >parent.$$ && mv parent.$$ rank.$$
exec sleep 1000
`
	fakeMpirun = `#!/bin/sh
cd "${0%/*}"
[ -e again ] && exit
touch again
true &
exec sleep 1000
`
)

// TestNoneLeft: an mpirun that collects none of its ranks, all of which have ended, is ended, and the program
// started again. Open MPI's gets there now and then when a rank is killed in MPI_Init; here it is stopped.
func TestNoneLeft(t *testing.T) {
	for _, real := range []bool{false, true} {
		t.Run("real="+strconv.FormatBool(real), func(t *testing.T) {
			dir := t.TempDir()
			rank, launcher := filepath.Join(dir, "rank-once"), filepath.Join(dir, "mpirun")
			err := errors.Join(os.WriteFile(rank, []byte(rankOnce), 0o700),
				os.WriteFile(launcher, []byte(fakeMpirun), 0o700))
			if err != nil {
				t.Fatal(err)
			}
			t.Parallel() // both files are closed: another's fork would keep them from being run
			line, strike := []string{launcher, "-n", "2", rank}, func(*testing.T, string) {}
			if real {
				if err := mpirun.OpenMPI.Available(); err != nil {
					t.Skip(err)
				}
				line = mpirun.OpenMPI.Command(nil, mpirun.Part{Ranks: 2, Command: []string{rank}})
				strike = stopAndKill
			}
			log, err := os.Create(filepath.Join(dir, "log")) // a file, because the launcher writes to it as well
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			struck := make(chan struct{})
			go func() { defer close(struck); strike(t, dir) }()
			code, err := Run(t.Context(), Options{Command: line, Stdout: log, Stderr: log,
				Limits: decide.Limits{MinNodes: 1, MaxRestarts: 3}})
			<-struck
			said, rerr := os.ReadFile(log.Name())
			if err != nil || rerr != nil || code != decide.ExitGood ||
				!bytes.Contains(said, []byte("the launcher has not noticed")) {
				t.Errorf("got %d, %v, %v\n%s", code, err, rerr, said)
			}
		})
	}
}

// stopAndKill stops the launcher of two ranks, and kills these.
func stopAndKill(t *testing.T, dir string) {
	var ranks []string
	for tick := time.Tick(20 * time.Millisecond); len(ranks) < 2; <-tick {
		ranks, _ = filepath.Glob(filepath.Join(dir, "rank.*")) // the pattern is right
	}
	parent, err := os.ReadFile(ranks[0])
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "again"), nil, 0o600)
	}
	pids := []int{pidOf(t, strings.TrimSpace(string(parent)))}
	for _, r := range ranks {
		pids = append(pids, pidOf(t, strings.TrimPrefix(filepath.Ext(r), ".")))
	}
	signal := syscall.SIGSTOP
	for _, pid := range pids {
		if kerr := syscall.Kill(pid, signal); err == nil {
			err = kerr
		}
		signal = syscall.SIGKILL
	}
	if err != nil {
		t.Error(err)
	}
}

func pidOf(t *testing.T, text string) int {
	pid, err := strconv.Atoi(text)
	if err != nil || pid < 2 {
		t.Errorf("%q is no process", text)
		return os.Getpid() + 1<<30 // none
	}
	return pid
}
