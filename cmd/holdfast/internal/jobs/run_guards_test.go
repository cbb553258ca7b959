package jobs

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// fakeSrun runs on this machine what the real one would run on a node: holdfast's own
// commands as they are, and the program as its body says ($node is the first of -w).
const fakeSrun = `node=; for w; do [ "$p" = -w ] && node=${w%%,*}; p=$w; done
case "$*" in
*--version) exit 0;;
*" guard") shift $(($# - 2)); SLURMD_NODENAME=$node exec "$@";;
esac
`

// inJob returns the environment of a job on this machine and two more nodes, with a scontrol
// that notes what it is asked to requeue in the file that is returned.
func inJob(t *testing.T, srun string) (requeues string) {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	requeues = filepath.Join(t.TempDir(), "requeues")
	for name, value := range map[string]string{"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": host + ",n1,n2",
		"SLURMD_NODENAME":     host,
		"SLURM_RESTART_COUNT": "", "HOLDFAST_GLOBAL": t.TempDir(), "HOLDFAST_LOCAL": ""} {
		t.Setenv(name, value)
	}
	commands(t, map[string]string{
		"scontrol": `case "$*" in
*config*) echo "KillWait = 30 sec"; echo "SlurmdPort = 6818";;
requeue*) echo "$@" >> ` + requeues + `;;
*) echo "JobState=RUNNING Restarts=0 Requeue=1 NodeList=` + host + `,n1,n2";;
esac`,
		"sinfo":  `for n in ` + host + ` n1 n2; do echo "$n|allocated|none"; done`,
		"squeue": "",
		"srun":   fakeSrun + srun,
	})
	return requeues
}

// TestGuards: a job that is to be requeued is guarded from other nodes before its program
// starts, and the guards end with it.
func TestGuards(t *testing.T) {
	requeues := inJob(t, `exec sleep 0.2`)
	errs := &testbuf.Buffer{}
	code := Run(t.Context(), []string{"run", "--interface=127.0.0.1", "--requeue", "--", "srun", "-n2", "./app"},
		io.Discard, errs)
	if code != 0 || strings.Contains(errs.String(), "guard") || !strings.Contains(errs.String(), "start-rank ./app") {
		t.Errorf("got code %d\n%s", code, errs)
	}
	if b, err := os.ReadFile(requeues); err == nil {
		t.Errorf("it was requeued: %s", b)
	}
}

// TestDiesBeforeOpen: the processes of a node end before Open while srun waits for those
// of another, and srun reports nothing. The start is ended in seconds, and another one made.
func TestDiesBeforeOpen(t *testing.T) {
	inJob(t, `if [ -e $0.fell ]; then exit 0; fi
touch $0.fell
export SLURM_LOCALID=0
while [ "${1%jobs.test}" = "$1" ]; do shift; done
SLURMD_NODENAME=n1 "$@" &
SLURMD_NODENAME=n2 "$1" "$2" sleep 0.3 &
wait`)
	errs := &testbuf.Buffer{}
	code := Run(t.Context(), []string{"run", "--interface=127.0.0.1", "--start-timeout=2m", "--", "srun", "-n2",
		"sleep", "100"}, io.Discard, errs)
	if code != 0 || strings.Contains(errs.String(), "MPI is the reason") ||
		!strings.Contains(errs.String(), "ending start 1: the program on node n2 ended before all ranks reached Open") {
		t.Errorf("got code %d\n%s", code, errs)
	}
}

// TestRequeuedMeanwhile: where the job was requeued while its node was frozen, the old run starts
// nothing more.
func TestRequeuedMeanwhile(t *testing.T) {
	inJob(t, `exit 139`)
	commands(t, map[string]string{"scontrol": `case "$*" in
*config*) echo "KillWait = 30 sec"; echo "SlurmdPort = 6818";;
*) n=0; [ -e $0.asked ] && n=1; touch $0.asked; echo "JobState=RUNNING Restarts=$n Requeue=1";;
esac`})
	errs := &testbuf.Buffer{}
	code := Run(t.Context(), []string{"run", "--interface=127.0.0.1", "--", "srun", "-n2", "./app"}, io.Discard, errs)
	if code != decide.ExitStopped || !strings.Contains(errs.String(), "was requeued meanwhile") ||
		strings.Contains(errs.String(), "start 2") {
		t.Errorf("got code %d\n%s", code, errs)
	}
}
