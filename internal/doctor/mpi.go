package doctor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// rankAnswer is the answer of a rank that the doctor has started.
type rankAnswer struct {
	Size      int    `json:"size"`
	Library   string `json:"library"`
	Signal    bool   `json:"signal"`    // USR1 reached the program
	Devices   bool   `json:"devices"`   // an OpenCL or CUDA library was loaded, too
	Forwarded bool   `json:"forwarded"` // USR1 to the launcher did
}

// Rank is one of the ranks that the doctor starts. It initialises MPI and the
// device libraries, as a program does, and finds out whether USR1 still reaches
// it. Rank 0 writes the answer.
func Rank(out io.Writer) (err error) {
	world, err := mpiwrap.Init(mpiwrap.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mpiwrap.Finalize()) }()
	a := rankAnswer{Size: world.Size(), Library: world.Library()}
	if dev, derr := gpustate.Open(gpustate.SelectFromEnv()); derr == nil {
		a.Devices = true
		defer func() { err = errors.Join(err, dev.Close()) }()
	}
	caught := make(chan os.Signal, 8)
	signal.Notify(caught, syscall.SIGUSR1)
	defer signal.Stop(caught)
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		return err
	}
	a.Signal = arrives(caught, 10*time.Second)
	if err := world.Barrier(); err != nil {
		return err
	}
	if world.Rank() == 0 {
		if _, err := io.WriteString(out, readyLine); err != nil {
			return err
		}
		a.Forwarded = arrives(caught, 3*time.Second)
		err = json.NewEncoder(out).Encode(a)
	}
	return errors.Join(err, world.Barrier())
}

// readyLine asks the doctor to send USR1 to the launcher.
const readyLine = "ready\n"

// A listener keeps a launcher's output and answers readyLine.
type listener struct {
	text  bytes.Buffer
	ready func()
}

// Write implements io.Writer.
func (l *listener) Write(b []byte) (int, error) {
	n, err := l.text.Write(b)
	if l.ready != nil && bytes.Contains(l.text.Bytes(), []byte(readyLine)) {
		l.ready()
		l.ready = nil
	}
	return n, err
}

// arrives waits for a signal. A busy machine takes its time.
func arrives(caught <-chan os.Signal, within time.Duration) bool {
	select {
	case <-caught:
		return true
	case <-time.After(within):
		return false
	}
}

func lookMPI(ctx context.Context, r *report) {
	found := 0
	for _, l := range mpirun.Launchers() {
		picked, err := mpirun.Pick(l.Name)
		if err != nil {
			r.add("MPI", l.Title, Skipped, "not installed", "")
			continue
		}
		found++
		r.tryMPI(ctx, picked)
	}
	if found == 0 {
		r.add("MPI", "launcher", Failed, "no mpirun.openmpi, mpirun.mpich or mpirun in PATH",
			"load a module (module avail mpi), or install openmpi-bin or mpich; programs run alone with -ranks 1")
	}
}

func (r *report) tryMPI(ctx context.Context, l mpirun.Launcher) {
	line := l.Command(nil, mpirun.Part{Ranks: 2, Command: r.Self})
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = mpirun.Environ()
	cmd.WaitDelay = 5 * time.Second
	var text bytes.Buffer
	out := listener{ready: func() { _ = cmd.Process.Signal(syscall.SIGUSR1) }} // the rank reports whether it arrives
	cmd.Stdout, cmd.Stderr = &out, &text
	err := cmd.Run()
	var a rankAnswer
	_, answer, _ := bytes.Cut(out.text.Bytes(), []byte(readyLine))
	if uerr := json.Unmarshal(answer, &a); uerr != nil {
		err = cmp.Or(err, uerr)
		r.add("MPI", l.Title, Failed, fmt.Sprintf("%s -np 2: %v; %s", line[0], err, lastLine(text.String())),
			"start any MPI program of two ranks by hand; the launcher must belong to the library ("+l.Title+")")
		return
	}
	r.judgeMPI(l.Title, line[0], a)
}

func (r *report) judgeMPI(title, command string, a rankAnswer) {
	if a.Size != 2 {
		r.add("MPI", title, Failed, fmt.Sprintf("%s started 2 ranks, each is alone with %s", command, a.Library),
			"launcher and library belong to different MPIs: use the mpirun of this library")
		return
	}
	r.add("MPI", title, OK, fmt.Sprintf("2 ranks with %s, %s", command, firstLine(a.Library)), "")
	loaded := "MPI"
	if a.Devices {
		loaded = "MPI and the device library"
	}
	if a.Signal {
		r.add("MPI", title+": signals", OK, "USR1 reaches a program that has loaded "+loaded, "")
	} else {
		r.add("MPI", title+": signals", Failed, "USR1 does not reach a program that has loaded "+loaded,
			"ask for checkpoints with 'holdfast request', -interval or -mtbf instead")
	}
	if a.Forwarded {
		r.add("MPI", title+": signals to "+command, OK, "USR1 to the launcher reaches the ranks", "")
	} else {
		r.add("MPI", title+": signals to "+command, Warning, "USR1 to the launcher does not reach the ranks",
			"send it to a rank, or use 'holdfast request'; HWLOC_COMPONENTS=-opencl keeps Open MPI's launcher from "+
				"losing it")
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.Join(strings.Fields(line), " ")
	if len(line) > 70 {
		line = line[:70] + "..."
	}
	return line
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if l := strings.Trim(lines[i], "-= \t"); l != "" {
			return l
		}
	}
	return "no output"
}
