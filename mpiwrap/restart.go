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

// restart is endpoint.Restart.
func (c *Comm) restart(observer func(op string)) (world *Comm, end func() error, err error) {
	h, err := c.st.Driver.Dup(c.ch.Handle)
	if err != nil {
		return nil, nil, c.ch.Wrap("Restart", NoPeer, NoTag, err)
	}
	world, err = over(onPart{c.st.Driver, h}, observer)
	if err != nil {
		return nil, nil, errors.Join(err, c.st.Driver.FreeComm(h))
	}
	return world, world.st.end, nil
}

// end frees everything. All ranks have the communicators they share in one order.
func (s *state) end() error {
	errs := []error{s.Withdraw(), s.freeWindows()}
	for _, c := range slices.Backward(slices.Clone(s.communicators())) {
		if c != s.world {
			errs = append(errs, c.Free())
		}
	}
	errs = append(errs, s.world.empty())
	s.Device.DropCTS()
	errs = append(errs, s.world.release(), s.private.Free(), s.Driver.FreeComm(s.world.ch.Handle))
	s.Finalized.Store(true)
	letGo(s)
	return errors.Join(errs...)
}

// letGo undoes keepForever: the library works for s no longer.
func letGo(s *state) {
	pinned.mu.Lock()
	defer pinned.mu.Unlock()
	pinned.states = slices.DeleteFunc(pinned.states, func(o *state) bool { return o == s })
}
