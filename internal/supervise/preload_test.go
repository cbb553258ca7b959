package supervise

import (
	"strings"
	"testing"
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
		cmd.preload(layer, c.before)
		if got := strings.Join(cmd.onHosts(nil, nil, 0), " "); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.line, got, c.want)
		}
	}
	cmd, err := parseCommand(strings.Fields("mpirun.openmpi -np 4 ./app"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.preload(layer, "")
	want := "mpirun.openmpi -x LD_PRELOAD=" + layer + " -np 2 ./app"
	if got := strings.Join(cmd.onHosts(nil, nil, 2), " "); got != want {
		t.Errorf("with half the ranks\ngot  %s\nwant %s", got, want)
	}
}
