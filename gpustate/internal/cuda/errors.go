package cuda

import "github.com/holdfast-hpc/holdfast/gpustate/internal/driver"

// Numbers of CUresult that this package acts on.
const (
	invalidValue = 1
	outOfMemory  = 2
	notReady     = 600
	missingCall  = -1
)

// kinds maps numbers to the conditions that gpustate acts on. After an error of
// a kernel, such as an illegal address, the context is permanently unusable.
var kinds = map[int]error{
	missingCall: driver.ErrUnsupported,
	outOfMemory: driver.ErrOutOfMemory,
	4:           driver.ErrDeviceLost, // DEINITIALIZED
	46:          driver.ErrDeviceLost, // DEVICE_UNAVAILABLE
	201:         driver.ErrDeviceLost, // INVALID_CONTEXT
	214:         driver.ErrDeviceLost, // ECC_UNCORRECTABLE
	500:         driver.ErrNoKernel,   // NOT_FOUND
	700:         driver.ErrDeviceLost, // ILLEGAL_ADDRESS
	702:         driver.ErrDeviceLost, // LAUNCH_TIMEOUT
	709:         driver.ErrDeviceLost, // CONTEXT_IS_DESTROYED
	714:         driver.ErrDeviceLost, // HARDWARE_STACK_ERROR
	715:         driver.ErrDeviceLost, // ILLEGAL_INSTRUCTION
	716:         driver.ErrDeviceLost, // MISALIGNED_ADDRESS
	717:         driver.ErrDeviceLost, // INVALID_ADDRESS_SPACE
	718:         driver.ErrDeviceLost, // INVALID_PC
	719:         driver.ErrDeviceLost, // LAUNCH_FAILED
	801:         driver.ErrUnsupported,
}

// check turns a CUresult into an error, nil for CUDA_SUCCESS.
func check(call string, rc status) error {
	if rc == 0 {
		return nil
	}
	text := "the driver does not have this call"
	if rc != missingCall {
		text = errorName(rc)
	}
	return &driver.CallError{Call: call, Code: int(rc), Text: text, Kind: kinds[int(rc)]}
}
