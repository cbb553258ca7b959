package sigguard

/*
#include <signal.h>
#include <string.h>

enum { hf_signals = 65 };

static struct sigaction hf_saved[hf_signals];
static char hf_valid[hf_signals];

static int hf_skipped(int s) { return s == SIGKILL || s == SIGSTOP; }

// hf_snapshot remembers every disposition. The C library refuses the signals
// it keeps for itself; those are left out.
static void hf_snapshot(void) {
	for (int s = 1; s < hf_signals; s++)
		hf_valid[s] = !hf_skipped(s) && sigaction(s, NULL, &hf_saved[s]) == 0;
}

// Of a signal mask the kernel fills the first 64 bits; the rest is noise.
static int hf_same(const struct sigaction *a, const struct sigaction *b) {
	return a->sa_handler == b->sa_handler && a->sa_flags == b->sa_flags &&
	       memcmp(&a->sa_mask, &b->sa_mask, 8) == 0;
}

static int hf_add_onstack(int s, struct sigaction *now) {
	if (now->sa_handler == SIG_DFL || now->sa_handler == SIG_IGN) return 0;
	if (now->sa_flags & SA_ONSTACK) return 0;
	now->sa_flags |= SA_ONSTACK;
	return sigaction(s, now, NULL);
}

// hf_restore reverses the changes since hf_snapshot and returns the first signal for which that was refused, or 0.
static int hf_restore(void) {
	int failed = 0;
	for (int s = 1; s < hf_signals; s++) {
		struct sigaction now;
		int rc = 0;
		if (!hf_valid[s] || sigaction(s, NULL, &now) != 0) continue;
		if (hf_same(&now, &hf_saved[s])) continue;
		if (s == SIGFPE)
			rc = hf_add_onstack(s, &now);
		else
			rc = sigaction(s, &hf_saved[s], NULL);
		if (rc != 0 && failed == 0) failed = s;
	}
	return failed;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
)

// guard counts the calls that share a snapshot, which is process-wide.
var guard struct {
	sync.Mutex
	inside int
}

// Around runs load, which loads, initialises or calls a native library, and afterwards restores every signal
// disposition that load changed, even if load fails or panics. It returns the error of load, joined with an error that
// names the signal if the kernel refuses a restoration.
//
// A program that changes dispositions itself (signal.Ignore, signal.Reset)
// while load runs may find that change undone.
func Around(load func() error) (err error) {
	guard.Lock()
	if guard.inside++; guard.inside == 1 {
		C.hf_snapshot()
	}
	guard.Unlock()
	defer func() {
		guard.Lock()
		defer guard.Unlock()
		guard.inside--
		if s := C.hf_restore(); s != 0 {
			err = errors.Join(err, fmt.Errorf("sigguard: restore handler of signal %d (%v): refused by the kernel",
				int(s), syscall.Signal(s)))
		}
	}()
	return load()
}
