package gpustate

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrInForeign says that what stops a device was called by the function that Device.Foreign runs, for
// which it would wait.
var ErrInForeign = errors.New("called within Device.Foreign of this device, for whose end it would wait: " +
	"call it when Foreign has returned")

// lending is the lock that is held for reading while foreign code has handles, for writing by what stops
// the device. It knows the threads of foreign code, on which it is held already: a second RLock there would
// wait for a writer that waits for the first.
type lending struct {
	sync.RWMutex
	mu      sync.Mutex       // taken after all other locks
	threads map[int]struct{} // those that functions of Foreign run on, by their ID
}

// held says whether the calling goroutine is one that Foreign runs: it alone is on that thread.
func (l *lending) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.threads) == 0 {
		return false
	}
	_, ok := l.threads[unix.Gettid()]
	return ok
}

// mark begins a function of Foreign on this thread, to which its goroutine is locked; unmark ends it.
func (l *lending) mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.threads == nil {
		l.threads = map[int]struct{}{}
	}
	l.threads[unix.Gettid()] = struct{}{}
}

func (l *lending) unmark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.threads, unix.Gettid())
}

// RLock and RUnlock do nothing where the lock is held by a function of Foreign that goes on after them.
func (l *lending) RLock() {
	if !l.held() {
		l.RWMutex.RLock()
	}
}

// RUnlock is the end of RLock, on the same goroutine.
func (l *lending) RUnlock() {
	if !l.held() {
		l.RWMutex.RUnlock()
	}
}
