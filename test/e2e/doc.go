// Package e2e runs whole programs under the real mpirun of each MPI, disturbs
// them and compares what they compute with an undisturbed run. Tests skip, with
// a reason, when an MPI is not installed.
package e2e
