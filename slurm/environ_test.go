package slurm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// picky puts a scontrol into PATH that obeys the variables which the real one obeys.
func picky(t *testing.T) {
	t.Helper()
	bin := t.TempDir()
	script := `#!/bin/sh
end=2026-11-20T13:27:36
[ "${SLURM_TIME_FORMAT:-standard}" = standard ] || end="Tomorr 13:27"
state=RUNNING
[ -z "$SLURM_CLUSTERS" ] || state=ELSEWHERE
[ "$LC_ALL" = C ] || state=LÄUFT
[ "$SLURM_JOB_ID" = 3 ] || state=NOBODY
echo "JobState=$state Restarts=0 StartTime=2026-11-20T13:17:36 EndTime=$end TimeLimit=00:10:00"
`
	if err := os.WriteFile(filepath.Join(bin, "scontrol"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// TestUsersFormats: what users set for their own commands changes nothing here.
func TestUsersFormats(t *testing.T) {
	picky(t)
	t.Setenv("SLURM_JOB_ID", "3")
	t.Setenv("SLURM_TIME_FORMAT", "relative")
	t.Setenv("SLURM_CLUSTERS", "other")
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	t.Setenv("LANG", "de_DE.UTF-8")
	j, err := (&Client{}).ShowJob(t.Context(), "3")
	if err != nil || j.State != "RUNNING" || j.End.Sub(j.Start) != 10*time.Minute {
		t.Errorf("got %+v, %v", j, err)
	}
}

// TestEnviron: nothing steers a command but what is given to it, and it still knows its
// cluster and its job.
func TestEnviron(t *testing.T) {
	got := strings.Join(Environ(strings.Fields("PATH=/bin SLURM_TIME_FORMAT=%s SLURM_HOSTFILE=h SLURM_CONF=/c "+
		"SLURM_JOB_ID=7 SINFO_PARTITION=x "+
		"SQUEUE_FORMAT=y SCANCEL_INTERACTIVE=1 LC_TIME=de LANG=de TZ=UTC HOLDFAST_X=1")), " ")
	if want := "PATH=/bin SLURM_CONF=/c SLURM_JOB_ID=7 TZ=UTC HOLDFAST_X=1 LC_ALL=C " +
		"SLURM_TIME_FORMAT=standard"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestTemporary: what is worth trying again, by the words of Slurm 22.05.
func TestTemporary(t *testing.T) {
	for text, want := range map[string]bool{
		"Unable to contact slurm controller (connect failure)":                                           true,
		"slurm_load_jobs error: Unable to contact slurm controller":                                      true,
		"Socket timed out on send/recv operation":                                                        true,
		"Zero Bytes were transmitted or received":                                                        true,
		"Job can not be altered now, try again later":                                                    true,
		"Requested operation is presently disabled for job 5":                                            false,
		"Job/step already completing or completed for job 5":                                             false,
		"Invalid job id specified":                                                                       false,
		"Access/permission denied":                                                                       false,
		"scontrol: error: If munged is up, restart with --num-threads=10; Protocol authentication error": true,
		"slurm_load_jobs error: Slurm backup controller in standby mode":                                 true,
	} {
		err := fmt.Errorf("requeue job 5: %w", &CommandError{Args: []string{"scontrol"}, Stderr: text,
			Err: fmt.Errorf("exit status 1")})
		if Temporary(err) != want {
			t.Errorf("%s: got %t, want %t", text, !want, want)
		}
	}
	if !Temporary(&CommandError{Err: ErrTimeout}) {
		t.Error("no answer in time: want it tried again")
	}
	if Temporary(errors.New("x")) {
		t.Error("an error of another kind: want it final")
	}
	var c Client
	_, killed := c.output(t.Context(), "sh", "-c", "kill -9 $$")
	if !Temporary(killed) ||
		!Temporary(&CommandError{Err: &os.SyscallError{Syscall: "fork/exec", Err: syscall.EAGAIN}}) {
		t.Error("a command that was killed, or could not be started: want it tried again")
	}
	gone := &CommandError{Stderr: "slurm_load_jobs error: Invalid job id specified", Err: errors.New("exit status 1")}
	if !Unknown(gone) || Unknown(killed) {
		t.Error("a job that Slurm has forgotten is not told from one that it does not tell of")
	}
}
