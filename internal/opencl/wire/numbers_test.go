package wire

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/test/cheader"
)

// TestNumbers: the library in C has the same numbers.
func TestNumbers(t *testing.T) {
	cheader.Check(t, "../../../lib/opencl/wire/protocol.h", "HFCL_", ".", "Op")
}
