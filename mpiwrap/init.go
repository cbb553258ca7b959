package mpiwrap

import (
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

// Single returns a world of one simulated rank, for programs that run without
// MPI. Its Library says so.
func Single() *Comm {
	c, err := newWorld(sim.New(1, sim.Options{}).Rank(0))
	if err != nil {
		panic("mpiwrap: a simulated world of one rank cannot fail: " + err.Error())
	}
	return c
}

// Over builds a world on a driver, with a function that hears of every call the
// program makes, or nil. It is how package mpitest makes simulated worlds;
// drivers are internal, so nobody else can.
func Over(d driver.Driver, observer func(op string)) (*Comm, error) {
	c, err := newWorld(d)
	if err == nil && observer != nil {
		c.st.observer = func(op opCode) { observer(op.String()) }
	}
	return c, err
}
