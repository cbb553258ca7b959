package job

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// frozen returns a machine that takes connections and whose processes say nothing; it
// returns the value of config.SupervisorVar for a supervisor on it.
func frozen(t *testing.T, value string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, rest, _ := strings.Cut(value, " ")
	return l.Addr().String() + " " + rest
}

// TestFate: a supervisor counts as dead only when it has been silent for long, Slurm
// says that the job continues as it was, and it is silent after that, too.
func TestFate(t *testing.T) {
	const patience = 50 * time.Millisecond
	for _, c := range []struct {
		name, show, steps string
		want              Fate
	}{
		{"the job continues without it", "JobState=RUNNING Restarts=2", "7.0 app\n7.4 holdfast-guard\n7.batch batch",
			SupervisorDead},
		{"it has started the program again", "JobState=RUNNING Restarts=2", "7.1 app", SupervisorLives},
		{"somebody has requeued the job", "JobState=RUNNING Restarts=3", "", SupervisorEnded},
		{"the job is over", "JobState=COMPLETING Restarts=2", "", SupervisorEnded},
		{"Slurm says what nobody understands", "State=what", "", SupervisorUnknown},
		{"Slurm does not answer", "", "", SupervisorUnknown},
		{"the job is suspended", "JobState=SUSPENDED Restarts=2", "", SupervisorUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			slurmSays(t, c.show, c.steps)
			_, value := supervised(t)
			ctx := t.Context()
			if c.want == SupervisorUnknown { // it would ask on and on
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			o := Inquiry{Supervisor: frozen(t, value), Job: "7", Step: "0", Restarts: 2, Patience: patience}
			if fate, why := o.Fate(ctx); fate != c.want {
				t.Errorf("got %d (%s), want %d", fate, why, c.want)
			}
		})
	}
	slurmSays(t, "JobState=RUNNING Restarts=2", "")
	s, value := supervised(t)
	o := Inquiry{Supervisor: value, Job: "7", Step: "0", Restarts: 2, Patience: time.Minute}
	if fate, why := o.Fate(t.Context()); fate != SupervisorLives {
		t.Errorf("it answers: got %d (%s)", fate, why)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if fate, why := o.Fate(ctx); fate != SupervisorUnknown {
		t.Errorf("its node refuses, and the job continues: got %d (%s)", fate, why)
	}
	slurmSays(t, "JobState=FAILED Restarts=2", "")
	if fate, why := o.Fate(t.Context()); fate != SupervisorEnded {
		t.Errorf("its node refuses, and the job has ended: got %d (%s)", fate, why)
	}
}

// TestFateGoesDown: a node that goes down first refuses connections and then does not
// answer.
func TestFateGoesDown(t *testing.T) {
	bin := slurmSays(t, "JobState=RUNNING Restarts=0", "")
	_, value := supervised(t)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}) // it refuses until it listens
	at, nameErr := syscall.Getsockname(fd)
	if err := errors.Join(err, nameErr); err != nil {
		t.Fatal(err)
	}
	go func() {
		for _, err := os.Stat(filepath.Join(bin, "healed")); err != nil && t.Context().Err() == nil; {
			time.Sleep(time.Millisecond)
			_, err = os.Stat(filepath.Join(bin, "healed"))
		}
		_ = syscall.Listen(fd, 8) // it takes connections and says nothing
	}()
	_, rest, _ := strings.Cut(value, " ")
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*syscall.SockaddrInet4).Port))
	o := Inquiry{Supervisor: addr + " " + rest, Job: "7", Patience: 100 * time.Millisecond}
	if fate, why := o.Fate(t.Context()); fate != SupervisorDead {
		t.Errorf("got %d (%s)", fate, why)
	}
}

// TestFateCutOff: a rank that was cut off from everybody for longer than its patience,
// and reaches Slurm and the supervisor again at the same moment, believes in no death.
func TestFateCutOff(t *testing.T) {
	s, value := supervised(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // the network, which passes nothing at first
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	bin := slurmSays(t, "JobState=RUNNING Restarts=0", "")
	mark := filepath.Join(bin, "healed")
	go func() { // passes connections on once Slurm was asked
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := os.Stat(mark); err != nil {
				continue
			}
			up, err := net.Dial("tcp", s.plane.Addr())
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(up, c) }()
			go func() { _, _ = io.Copy(c, up) }()
		}
	}()
	_, rest, _ := strings.Cut(value, " ")
	o := Inquiry{Supervisor: l.Addr().String() + " " + rest, Job: "7", Patience: askWithin}
	if fate, why := o.Fate(t.Context()); fate != SupervisorLives {
		t.Errorf("got %d (%s)", fate, why)
	}
}

// slurmSays puts a scontrol and a squeue into PATH with given answers, none for "", and
// returns their directory, in which a file "healed" is made when the job is asked for.
func slurmSays(t *testing.T, show, steps string) string {
	t.Helper()
	bin := t.TempDir()
	scontrol := "#!/bin/sh\n: > " + bin + "/healed\necho " + show + "\n"
	if show == "" {
		scontrol = "#!/bin/sh\necho Unable to contact slurm controller >&2\nexit 1\n"
	}
	for name, body := range map[string]string{"scontrol": scontrol, "squeue": "#!/bin/sh\nprintf '" + steps +
		"\\n'\n"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(body), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return bin
}
