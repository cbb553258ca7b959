// Package sigguard keeps native libraries from taking the process's signals.
//
// MPICH, UCX, hwloc and OpenCL's LLVM install signal handlers while they are
// loaded or initialised, some of them without an alternate signal stack. After
// that os/signal no longer hears of those signals, and a signal that lands on a
// goroutine stack ends the program: Go's runtime requires SA_ONSTACK. Around
// runs such an initialisation and puts the dispositions back that were there
// before it.
//
// SIGFPE is the exception: OpenCL's PoCL relies on its handler to survive a
// division by zero in a kernel, and Go's own one is reached through it. It
// stays, with SA_ONSTACK added.
//
// # Concurrency
//
// Around may be called from any goroutine; calls take turns. It must not be
// called from within load: that would wait for itself.
package sigguard
