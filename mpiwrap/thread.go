package mpiwrap

import "runtime"

// thread is an OS thread that does what it is given and nothing else. MPI is begun
// and ended on one, as it demands: goroutines move between threads.
type thread struct{ work chan func() }

func newThread() *thread {
	t := &thread{work: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range t.work {
			f()
		}
	}()
	return t
}

// do runs f on the thread and returns when it has.
func (t *thread) do(f func()) {
	done := make(chan struct{})
	t.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

// onThread starts f on the thread of Init, or on any where there is none.
func (s *state) onThread(f func()) {
	if s.thread == nil {
		go f()
		return
	}
	s.thread.work <- f
}
