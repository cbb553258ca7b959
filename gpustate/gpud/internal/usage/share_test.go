package usage

import (
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// TestAvailable: what a client of a device in the machine's memory can have is what
// is available, and not all of it.
func TestAvailable(t *testing.T) {
	total, available := shm.Machine()
	if total == 0 || available == 0 || available > total {
		t.Fatalf("%d of %d bytes are available", available, total)
	}
	info := driver.Info{Kind: "fake", HostMemory: true, GlobalBytes: 1 << 50, MaxAllocBytes: 1 << 50}
	counts, err := New(1)
	if err != nil {
		t.Fatal(err)
	}
	s := NewShare(counts, counts.At(0), 0)
	s.Choose(0, &info)
	if free := s.Free(0, false); free > available || free <= 0 {
		t.Errorf("%d bytes are free of %d that are available", free, available)
	}
	if err := s.Allow(2 * available); !errors.Is(err, driver.ErrOutOfMemory) {
		t.Errorf("twice what is available: got %v, want ErrOutOfMemory", err)
	}
	if err := errors.Join(s.Allow(checkBytes), counts.Close()); err != nil {
		t.Error(err)
	}
}
