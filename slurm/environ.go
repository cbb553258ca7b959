package slurm

import (
	"slices"
	"strings"
)

// The variables of Slurm that its commands need here: which cluster, which job, and
// how to prove who asks. All others that begin so change what a command asks for or
// how it writes the answer, as options do: SLURM_TIME_FORMAT, SINFO_PARTITION,
// SCANCEL_INTERACTIVE and many more. They are the user's own, for the user's
// commands.
var needed = []string{"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_JOB_ID", "SLURM_JOBID"}

// steering are the beginnings of the names of variables that Slurm's commands obey.
var steering = []string{"SLURM_", "SRUN_", "SQUEUE_", "SINFO_", "SCONTROL_", "SCANCEL_", "SACCT_"}

// Environ is the environment of a command of Slurm whose output is read by a program:
// env without what the user has set for commands of their own, times as in ISO 8601,
// messages in English.
func Environ(env []string) []string {
	var out []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		steers := slices.ContainsFunc(steering, func(p string) bool { return strings.HasPrefix(name, p) })
		if steers && !slices.Contains(needed, name) || name == "LANG" || name == "LANGUAGE" ||
			strings.HasPrefix(name, "LC_") {
			continue
		}
		out = append(out, v)
	}
	return append(out, "LC_ALL=C", "SLURM_TIME_FORMAT=standard")
}
