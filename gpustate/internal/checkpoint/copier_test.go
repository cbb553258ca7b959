package checkpoint

import (
	"runtime"
	"testing"
	"unsafe"
	"weak"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// lateDevice uses the memory of a transfer when that is waited for.
type lateDevice struct {
	driver.Device
	memory []weak.Pointer[byte] // of the transfers, by event
	freed  int                  // transfers whose memory was freed before
}

func (*lateDevice) Info() driver.Info { return driver.Info{HostMemory: true} }

func (d *lateDevice) Transfer(_ driver.Handle, t driver.Transfer, _ []driver.Event) (driver.Event, error) {
	d.memory = append(d.memory, weak.Make(unsafe.SliceData(t.Host)))
	return driver.Event(len(d.memory)), nil
}

func (d *lateDevice) WaitEvent(e driver.Event) error {
	runtime.GC()
	if d.memory[e-1].Value() == nil {
		d.freed++
	}
	return nil
}

func (*lateDevice) ReleaseEvent(driver.Event) {}

// TestUpKeepsMemory: memory that is written to a device is not freed before the command is complete.
func TestUpKeepsMemory(t *testing.T) {
	for _, unpinned := range []bool{true, false} {
		d := &lateDevice{}
		cp := &copier{drv: d}
		u := upload{bytes: 3*PieceBytes + 1, fill: func([]byte, int64, driver.Place) error { return nil },
			write: func(cp *copier, to driver.Place, src []byte, block bool) (driver.Event, error) {
				return cp.write(nil, to, src, block)
			}}
		if err := cp.up(t.Context(), u, unpinned); err != nil || len(d.memory) != 4 || d.freed != 0 {
			t.Errorf("unpinned %t: %v; the memory of %d writes of %d was freed too early", unpinned, err, d.freed,
				len(d.memory))
		}
	}
}
