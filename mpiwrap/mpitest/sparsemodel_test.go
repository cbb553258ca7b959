package mpitest_test

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// TestModelsInASparseWorld runs the random programs as in a world that is too large for
// dense exchanges of counts.
func TestModelsInASparseWorld(t *testing.T) {
	defer func(n int) { driver.DenseRanks = n }(driver.DenseRanks)
	driver.DenseRanks = 0
	t.Run("simulated", TestModelOnSimulatedRanks)
	t.Run("restarts", TestModelAcrossRestarts)
}
