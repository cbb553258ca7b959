package slurm_test

import (
	"fmt"
	"log"

	"github.com/holdfast-hpc/holdfast/slurm"
)

// A job reads its allocation from its environment. os.Getenv takes the place of the map in a program.
func Example() {
	env := map[string]string{"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "gpu[1-3]", "SLURM_JOB_NAME": "heat"}
	job, inJob, err := slurm.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(inJob, job.ID, job.Name, job.Nodes)
	// Output: true 7 heat [gpu1 gpu2 gpu3]
}

func ExampleExpandNodes() {
	names, err := slurm.ExpandNodes("n[1-2,07],login")
	fmt.Println(names, err)
	fmt.Println(slurm.FoldNodes([]string{"n1", "n2", "n3", "login"}))
	// Output:
	// [n1 n2 n07 login] <nil>
	// n[1-3],login
}
