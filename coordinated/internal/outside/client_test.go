package outside_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outside"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestClient asks a running job for checkpoints from outside, and then for a
// final one.
func TestClient(t *testing.T) {
	opt := jobtest.Options(t)
	asked := make(chan error, 1)
	err := mpitest.NewWorld(3, mpitest.Options{Seed: 7}).Run(func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, step, err := jobtest.OpenStep(ctx, world, opt)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			go func() { asked <- askThenStop(opt.Global) }()
		}
		for err == nil {
			*step++
			if err = world.Barrier(); err == nil {
				err = ck.Point(ctx)
			}
			if err == nil && *step%50 == 0 {
				err = ck.Wait(ctx, "global")
			}
		}
		var bad *coordinated.OptionError
		if werr := ck.Wait(ctx, "nosuch"); !errors.As(werr, &bad) ||
			werr.Error() != `wait for level "nosuch": it is not in use; checkpoints go to local, global` {
			t.Errorf("Wait at an unknown level: %v", werr)
		}
		if !errors.Is(err, coordinated.ErrStop) {
			ck.Abort(err)
			return err
		}
		return ck.Close()
	})
	if err := errors.Join(err, <-asked); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(opt.Global, job.ContactName)); err == nil {
		t.Error("the contact file is still there after the job")
	}
	if _, err := job.DialJob(t.Context(), opt.Global); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the job: got %v, want that its contact file is not there", err)
	}
}

// TestClientElsewhere: a job on one node listens only there, and a client
// elsewhere gets an error that names the node.
func TestClientElsewhere(t *testing.T) {
	dir := t.TempDir()
	b, err := json.Marshal(job.Contact{Addr: "127.0.0.1:1", Node: "nowhere"})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, job.ContactName), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.DialJob(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "run this on nowhere") {
		t.Errorf("got %v, want the node named", err)
	}
}

// TestClientOfTheDead: a client of a job whose process has died without ending it gets an error, and so does the next
// run. None connects to the port: MPICH's mpiexec, which may have it by then, ends of that.
func TestClientOfTheDead(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // another program, which a connection would disturb
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, daemon := range []bool{false, true} {
		dir := t.TempDir()
		k := job.Contact{Job: "j", Addr: l.Addr().String(), Node: host, PID: gone.Process.Pid, Daemon: daemon,
			Machine: child.Machine(), Started: 1}
		b, err := json.Marshal(k)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, job.ContactName), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(": rank 0 of job j, process %d on %s, has died", k.PID, host)
		if daemon {
			want = fmt.Sprintf(": the node daemon of job j, process %d on %s, has died", k.PID, host)
		}
		if _, err := job.DialJob(t.Context(), dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if err := outside.Answering(t.Context(), dir); err != nil {
			t.Error(err)
		}
	}
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if got, want := first.RemoteAddr().String(), ours.LocalAddr().String(); got != want {
		t.Errorf("the port of a process that has ended got a connection from %s", got)
	}
}

func askThenStop(dir string) error {
	ctx := context.Background()
	cl, err := job.DialJob(ctx, dir)
	if err != nil {
		return err
	}
	defer cl.Close()
	for i := range 3 {
		st, err := cl.Request(ctx, false, true)
		if err != nil {
			return err
		}
		if len(st.Epochs) < i+1 || len(st.Epochs[i].DurableSeconds) != 2 {
			return errors.New("a request that was waited for left no durable epoch")
		}
	}
	pid := fmt.Sprintf("its rank 0 is process %d on node", os.Getpid())
	if err := outside.Answering(ctx, dir); err == nil || !strings.Contains(err.Error(), pid) {
		return fmt.Errorf("a second run in the directory: got %v, want %q", err, pid)
	}
	if _, err := wrongKey(ctx, dir); !errors.Is(err, control.ErrUnauthenticated) && err == nil {
		return errors.New("a wrong key was admitted")
	}
	_, err = cl.Request(ctx, true, false)
	return err
}

// wrongKey dials with a key that is not the job's.
func wrongKey(ctx context.Context, dir string) (any, error) {
	b, err := os.ReadFile(filepath.Join(dir, job.ContactName))
	if err != nil {
		return nil, err
	}
	var k job.Contact
	if err := json.Unmarshal(b, &k); err != nil {
		return nil, err
	}
	k.Key[0] ^= 1
	return control.DialClient(ctx, k.Addr, 0, k.Key)
}
