package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// Job holds the data about a job in its environment.
type Job struct {
	ID        string
	Name      string
	Partition string
	Restarts  int      // how often it was requeued
	Nodes     []string // of the allocation
	Tasks     int      // asked for; 0 if nothing was said
	// CPUsPerNode are by node of the allocation, empty if nothing was said.
	CPUsPerNode []int
	Step        string // number of the step; "" outside a step
	NodeName    string // this one's
}

func errEnv(name, value string, err error) error {
	return fmt.Errorf("slurm: variable %s=%q: %w", name, value, err)
}

// FromEnv reads the variables of Slurm by getenv, such as os.Getenv. It returns false if there is no SLURM_JOB_ID. The
// error names the first variable that it does not understand. It runs no command.
func FromEnv(getenv func(string) string) (Job, bool, error) {
	r := &envReader{getenv: getenv}
	j := Job{
		ID:        getenv("SLURM_JOB_ID"),
		Name:      getenv("SLURM_JOB_NAME"),
		Partition: getenv("SLURM_JOB_PARTITION"),
		NodeName:  getenv("SLURMD_NODENAME"),
		Step:      getenv("SLURM_STEP_ID"),
	}
	if j.ID == "" {
		return Job{}, false, nil
	}
	j.Restarts = read(r, "SLURM_RESTART_COUNT", number)
	j.Nodes = read(r, "SLURM_JOB_NODELIST", ExpandNodes)
	j.Tasks = read(r, "SLURM_NTASKS", number)
	j.CPUsPerNode = read(r, "SLURM_JOB_CPUS_PER_NODE", ExpandCounts)
	return j, true, r.err
}

// envReader keeps the first error.
type envReader struct {
	getenv func(string) string
	err    error
}

func read[T any](r *envReader, name string, parse func(string) (T, error)) T {
	v, err := parse(r.getenv(name))
	if err != nil && r.err == nil {
		r.err = errEnv(name, r.getenv(name), err)
	}
	return v
}

// number reads a number; none is 0.
func number(s string) (int, error) {
	if s = strings.TrimSpace(s); s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err
}
