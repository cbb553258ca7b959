package mpitest

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// TestModelFindsBugsOfDevices runs the random programs with devices that have a bug: each is found.
func TestModelFindsBugsOfDevices(t *testing.T) {
	for b := noBug + 1; b < bugs; b++ {
		seed, err := uint64(0), error(nil)
		for ; seed < 60 && err == nil; seed++ {
			err = runWithBug(seed, b)
		}
		if err == nil {
			t.Errorf("bug %d of a device is not found by %d programs", b, seed)
		}
	}
}

// runWithBug ends the world with the first error of a rank: the others would wait for it.
func runWithBug(seed uint64, b bug) error {
	w := NewWorld(2, Options{Seed: seed, Delay: 0.2})
	return w.Run(func(c *mpiwrap.Comm) error {
		m := NewModel(seed, 2, 12)
		m.bug = b
		err := m.Attach(c)
		if err == nil {
			_, err = m.Run(false)
		}
		if err != nil {
			w.Abort(err)
		}
		return err
	})
}
