package supervise

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/preload"
)

// TestPreload: the library comes to the ranks alone, and what the user preloads stays.
func TestPreload(t *testing.T) {
	const layer = "/opt/libholdfast-mpi.so.0"
	for _, c := range []struct{ line, before, want string }{
		{"mpirun.openmpi -np 2 ./app -x LD_PRELOAD", "",
			"mpirun.openmpi -x LD_PRELOAD=/opt/libholdfast-mpi.so.0 -np 2 ./app -x LD_PRELOAD"},
		{"mpirun.openmpi -np 2 ./app", "/u.so",
			"mpirun.openmpi -x LD_PRELOAD=/opt/libholdfast-mpi.so.0:/u.so -np 2 ./app"},
		{"mpirun.openmpi -x LD_PRELOAD -np 2 ./app", "/u.so",
			"mpirun.openmpi -x LD_PRELOAD=/opt/libholdfast-mpi.so.0:/u.so -np 2 ./app"},
		{"mpirun.openmpi -np 2 -x LD_PRELOAD=/v.so ./app", "/u.so",
			"mpirun.openmpi -np 2 -x LD_PRELOAD=/opt/libholdfast-mpi.so.0:/v.so ./app"},
		{"mpiexec.mpich -n 2 ./app", "", "mpiexec.mpich -genv LD_PRELOAD /opt/libholdfast-mpi.so.0 -n 2 ./app"},
		{"mpiexec.mpich -genv LD_PRELOAD /v.so -n 2 ./app", "",
			"mpiexec.mpich -genv LD_PRELOAD /opt/libholdfast-mpi.so.0:/v.so -n 2 ./app"},
		{"mpiexec.mpich -n 2 -env LD_PRELOAD /v.so ./app", "/u.so", "mpiexec.mpich -genv LD_PRELOAD " +
			"/opt/libholdfast-mpi.so.0:/u.so -n 2 -env LD_PRELOAD /opt/libholdfast-mpi.so.0:/v.so ./app"},
		{"srun -n 2 ./app", "", "srun ./app"},
	} {
		cmd, err := parseCommand(strings.Fields(c.line))
		if err != nil {
			t.Fatal(c.line, err)
		}
		cmd.preload(preload.Var, layer, c.before)
		if got := strings.Join(cmd.onHosts(nil, nil, 0), " "); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.line, got, c.want)
		}
	}
	cmd, err := parseCommand(strings.Fields("mpirun.openmpi -np 4 ./app"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.preload(preload.Var, layer, "")
	cmd.preload(preload.Audit, "/opt/cuda.so", "/u.so")
	want := "mpirun.openmpi -x LD_AUDIT=/opt/cuda.so:/u.so -x LD_PRELOAD=" + layer + " -np 2 ./app"
	if got := strings.Join(cmd.onHosts(nil, nil, 2), " "); got != want {
		t.Errorf("with half the ranks\ngot  %s\nwant %s", got, want)
	}
}

// TestFindLayer looks at the program, whatever stands before it; a command may have no arguments at all.
func TestFindLayer(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, preload.Layer), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable() // a program in Go
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]bool{"/bin/sh": true, self: false, "mpirun.openmpi -np 2 /bin/sh -c true": true,
		"mpirun.openmpi -np 2 " + self: false, "mpiexec.mpich -n 2": true, "srun -n 2 " + self + " -x": false} {
		cmd, err := parseCommand(strings.Fields(line))
		if err != nil {
			t.Fatal(line, err)
		}
		s := &setup{opt: Options{Self: filepath.Join(dir, "holdfast")}, cmd: cmd, log: &log{w: io.Discard}}
		if s.findLayer(t.Context()); (s.libraries != "") != want {
			t.Errorf("%s: got %q, want one: %v", line, s.libraries, want)
		}
	}
}

// TestSpaceInPath: the dynamic linker would leave out a library whose path has a space, and a checkpoint the messages.
func TestSpaceInPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a tree")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, preload.Layer), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for messages, want := range map[Messages]bool{MessagesAuto: false, MessagesOn: false, MessagesOff: true} {
		cmd, err := parseCommand([]string{"mpirun.openmpi", "-n", "2", "/bin/sh"})
		if err != nil {
			t.Fatal(err)
		}
		s := &setup{opt: Options{Self: filepath.Join(dir, "holdfast"), Messages: messages}, cmd: cmd}
		if err := s.findLibraries(t.Context()); (err == nil) != want {
			t.Errorf("messages %d: %v, want it to begin: %v", messages, err, want)
		}
	}
}
