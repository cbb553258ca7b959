package node

import (
	"fmt"
	"os"
)

// KeyVar names the job for its daemon and clients.
const KeyVar = "HOLDFAST_NODE_KEY"

// ReadyLine begins the line that a daemon with --stay writes when ranks can connect; the name of
// its host and its process id follow.
const ReadyLine = "holdfast node ready: "

// Key is that of the job which this process belongs to: see NODE.md.
func Key(getenv func(string) string) string {
	if k := getenv(KeyVar); k != "" {
		return k
	}
	if k := getenv("PMIX_NAMESPACE"); k != "" {
		return k
	}
	if step := getenv("SLURM_STEP_ID"); step != "" { // a batch script is in none, and may start several programs
		return "slurm." + getenv("SLURM_JOB_ID") + "." + step
	}
	return fmt.Sprint("parent.", os.Getppid())
}
