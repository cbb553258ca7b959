package fake

import "github.com/holdfast-hpc/holdfast/gpustate/internal/driver"

// idle is a device that takes launches, arguments and markers and does nothing, so that only the way to it is measured.
type idle struct{ *device }

func (idle) SetArg(driver.Handle, int, driver.Arg) error { return nil }

// Launch gives an event if the queue is not lazy.
func (idle) Launch(q, _ driver.Handle, _ driver.Grid, _ []driver.Event) (driver.Event, error) {
	if q.(*queue).lazy {
		return 0, nil
	}
	return 1, nil
}

func (idle) Marker(driver.Handle, []driver.Event) (driver.Event, error) { return 1, nil }
func (idle) WaitEvent(driver.Event) error                               { return nil }
func (idle) EventDone(driver.Event) (bool, error)                       { return true, nil }
func (idle) ReleaseEvent(driver.Event)                                  {}
