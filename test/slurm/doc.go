// Package slurm runs programs on the Slurm test bed, lets nodes die under them
// and compares what they compute with an undisturbed run.
package slurm
