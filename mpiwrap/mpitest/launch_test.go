package mpitest_test

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// libraryEnv names the library a rank program opens.
const libraryEnv = "HOLDFAST_MPITEST_LIBRARY"

func TestWrongPairingIsRefused(t *testing.T) {
	launchers := mpirun.Launchers()
	for i, library := range []string{"libmpich.so.12", "libmpi.so.40"} {
		l, other := launchers[i], launchers[1-i]
		t.Run(l.Name+" with "+library, func(t *testing.T) {
			if err := errors.Join(l.Available(), other.Available()); err != nil {
				t.Skip(err)
			}
			j := l.Job(2, 10*time.Minute, os.Args[0])
			j.Env = []string{rankEnv + "=suite", libraryEnv + "=" + library}
			out, err := j.CombinedOutput(t.Context())
			if err == nil || strings.Contains(out, "PASSED") {
				t.Fatalf("the pairing was accepted:\n%s", out)
			}
			if !strings.Contains(out, "do not match") { // of the other rank only if it is not ended before
				t.Errorf("no rank explained the refusal:\n%s", out)
			}
		})
	}
}

func TestMissingLibraryIsNamed(t *testing.T) {
	_, err := mpiwrap.Init(mpiwrap.Options{Library: "libno-such-mpi.so.9"})
	var missing *mpiwrap.LibraryError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "libno-such-mpi.so.9") {
		t.Errorf("got %v, want a LibraryError that names the file", err)
	}
}

// signals: after Init each signal a checkpoint is asked with reaches the program.
func signals(w *mpiwrap.Comm) error {
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM} {
		c := make(chan os.Signal, 1)
		signal.Notify(c, s)
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			return err
		}
		select {
		case <-c:
		case <-time.After(time.Minute):
			return fmt.Errorf("%v did not reach os/signal after Init", s)
		}
		signal.Stop(c)
	}
	return w.Barrier()
}

func TestSignalsReachTheProgram(t *testing.T) {
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) { launch(t, l, 2, "signals") })
	}
}
