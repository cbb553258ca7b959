// Package sigguard keeps native libraries from taking the process's signals.
//
// MPICH, UCX, hwloc and OpenCL's LLVM install signal handlers while they are
// loaded or initialised, some of them without an alternate signal stack. NVRTC
// takes INT, TERM and XFSZ for each compilation and puts Go's handlers back without
// SA_ONSTACK. After that os/signal no longer receives those signals, or a signal that
// lands on a goroutine stack ends the program: Go's runtime requires SA_ONSTACK. Around
// runs such a call and puts the dispositions back that were there before it. A signal
// that comes meanwhile is the library's: NVRTC's handler ends the program.
//
// SIGFPE is the exception: OpenCL's PoCL relies on its handler to survive a
// division by zero in a kernel, and Go's own one is reached through it. It
// stays, with SA_ONSTACK added.
//
// # Concurrency
//
// Around may be called from any goroutine, also from within load. Each of several calls at the same time restores the
// state from before the first.
package sigguard
