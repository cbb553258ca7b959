package mpiwrap

import (
	"errors"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// onPart is a driver whose world is a communicator of another.
type onPart struct {
	driver.Driver
	world driver.Handle
}

func (d onPart) World() driver.Handle { return d.world }

// Afresh makes another world on the ranks of w, like that of a process which has just
// called Init: nothing has been sent, no communicator made, no message waits in it. A
// test restarts its program in it without a new process. The observer, if there is one, hears of
// every call before it is made. Collective over w, which must not be used before end has returned.
//
// end is collective as well, and does what the end of a process would: receives that are pending
// are withdrawn, messages dropped, and communicators, windows and prepared requests freed.
func Afresh(w *Comm, observer func(op string)) (world *Comm, end func() error, err error) {
	h, err := w.st.drv.Dup(w.h)
	if err != nil {
		return nil, nil, w.wrap("Afresh", NoPeer, NoTag, err)
	}
	world, err = Over(onPart{w.st.drv, h}, observer)
	if err != nil {
		return nil, nil, errors.Join(err, w.st.drv.FreeComm(h))
	}
	return world, world.st.end, nil
}

// end frees everything. All ranks have the communicators they share in one order.
func (s *state) end() error {
	errs := []error{s.withdraw(), s.freeWindows()}
	for _, c := range slices.Backward(slices.Clone(s.communicators())) {
		if c != s.world {
			errs = append(errs, c.Free())
		}
	}
	errs = append(errs, s.world.empty(), s.world.release(), s.private.Free(), s.drv.FreeComm(s.world.h))
	s.finalized.Store(true)
	letGo(s)
	return errors.Join(errs...)
}

// withdraw ends every request.
func (s *state) withdraw() error {
	var errs []error
	for s.pending.first != nil {
		r := s.pending.first
		errs = append(errs, r.Cancel())
		if _, err := r.Wait(); err != nil {
			errs = append(errs, err)
		}
		if s.pending.first == r { // a Wait that fails must not go on for ever
			break
		}
	}
	for r := range s.prepared {
		errs = append(errs, r.Free())
	}
	return errors.Join(errs...)
}

// letGo undoes keepForEver: the library works for s no longer.
func letGo(s *state) {
	pinned.mu.Lock()
	defer pinned.mu.Unlock()
	pinned.states = slices.DeleteFunc(pinned.states, func(o *state) bool { return o == s })
}
