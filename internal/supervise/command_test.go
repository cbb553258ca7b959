package supervise

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseSrun(t *testing.T) {
	c, err := parseCommand(strings.Fields("srun --mpi=pmix -K -vv -N3-4 -n 6 --export ALL -c2 --ntasks-per-node=2 -l " +
		"./app -n 9 --mpi=none"))
	if err != nil {
		t.Fatal(err)
	}
	if c.kind != launchSrun || c.tasks != 6 || c.nodes != 3 || c.each != 2 || c.cpus != 2 || c.plugin != "pmix" ||
		strings.Join(c.prog, " ") != "./app -n 9 --mpi=none" {
		t.Errorf("got %+v", c)
	}
	got := strings.Join(c.onNodes([]string{"n1", "n3"}, []string{"n2"}, 6, 4), " ")
	want := "srun --mpi=pmix -K -vv -N3-4 -n 6 --export ALL -c2 --ntasks-per-node=2 -l --overlap -N 2 -n 6 -w n[1,3] " +
		"-x n2 --ntasks-per-node=3 --overcommit ./app -n 9 --mpi=none"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, bad := range []string{"srun", "srun -n", "srun -n x ./app", "srun -N0 ./app", "srun --het-group=0,1 ./app",
		"srun -n2 ./a : -n3 ./b", "srun --new-flag /bin/sh -c true"} {
		if _, err := parseCommand(strings.Fields(bad)); err == nil {
			t.Errorf("%s: got no error", bad)
		}
	}
	if c, err := parseCommand(strings.Fields("srun -- ./app -x")); err != nil || c.prog[0] != "./app" {
		t.Errorf("--: got %+v, %v", c, err)
	}
}

func TestParseMpirun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("# machines\nn1 slots=2\nn2:4\n\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, nodes, want string }{
		{"mpirun.openmpi --hostfile " + file + " --mca btl self,tcp -np 4 -x A ./app -host z", "n1 n2",
			"mpirun.openmpi -x HOLDFAST_B --host n1:2,n2:2 --oversubscribe --mca btl self,tcp -np 4 -x A ./app " +
				"-host z"},
		{"mpirun.openmpi --host n1,n2 -N 1 ./app", "n2", "mpirun.openmpi -x A -x HOLDFAST_B --host n2:1 " +
			"--oversubscribe ./app"},
		{"mpiexec.mpich -f " + file + " -genv A 1 -n 6 ./app", "n1 n2", "mpiexec.mpich -hosts n1:3,n2:3 -genv A 1 -n " +
			"6 ./app"},
		{"mpiexec.mpich -ppn 2 -n 4 ./app", "", "mpiexec.mpich -ppn 2 -n 4 ./app"},
		{"mpirun.openmpi -np 2 ./app : -np 1 ./b", "", "mpirun.openmpi -x A -x HOLDFAST_B -np 2 ./app : -np 1 ./b"},
	} {
		cmd, err := parseCommand(strings.Fields(c.line))
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		got := strings.Join(cmd.onHosts(strings.Fields(c.nodes), []string{"A", "HOLDFAST_B"}, 0), " ")
		if got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.line, got, c.want)
		}
	}
	for line, want := range map[string]string{ // on one node of two, with half the ranks
		"mpirun.openmpi --host n1,n2 -np 4 ./app -n 9": "mpirun.openmpi --host n1:2 --oversubscribe -np 2 ./app -n 9",
		"mpiexec.mpich -hosts n1,n2 -ppn 2 ./app":      "mpiexec.mpich -hosts n1:2 -n 2 ./app",
	} {
		cmd, err := parseCommand(strings.Fields(line))
		if err != nil {
			t.Fatal(line, err)
		}
		if got := strings.Join(cmd.onHosts([]string{"n1"}, nil, 2), " "); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", line, got, want)
		}
	}
	for _, bad := range []string{"mpirun.openmpi -np x ./app", "mpirun.openmpi --hostfile /nosuch ./app",
		"mpiexec.mpich -ppn x ./app"} {
		if _, err := parseCommand(strings.Fields(bad)); err == nil {
			t.Errorf("%s: got no error", bad)
		}
	}
}

// TestKindOf: a program that is called as a launcher in part is none; options of mpirun would be its arguments.
func TestKindOf(t *testing.T) {
	for name, want := range map[string]launcherKind{"./hydra": launchPlain, "/opt/heat.mpich": launchPlain,
		"mpiexec.hydra": launchMPICH, "/opt/bin/mpirun.mpich": launchMPICH, "mpirun.openmpi": launchOpenMPI,
		"orterun": launchOpenMPI, "/usr/bin/srun": launchSrun, "./a.out": launchPlain} {
		if got := kindOf(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestRecovers: options of Open MPI's mpirun let it continue without a rank.
func TestRecovers(t *testing.T) {
	for line, want := range map[string]bool{
		"mpirun.openmpi --enable-recovery -np 2 ./app":            true,
		"mpirun.openmpi --mca orte_enable_recovery 1 -np 2 ./app": true,
		"mpirun.openmpi -np 2 ./app":                              false,
		"srun -n2 ./app --enable-recovery":                        false,
	} {
		c, err := parseCommand(strings.Fields(line))
		if err != nil || c.recovers() != want {
			t.Errorf("%s: got %t, %v", line, c.recovers(), err)
		}
	}
}
