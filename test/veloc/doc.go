// Package veloc tests libveloc-client with programs as users of VeloC write them: they are
// aborted, killed and restarted under another MPI, and end with the bytes of a run that was not.
package veloc
