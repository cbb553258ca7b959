package job

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
)

// TestHostMemory: there are as many zeroed elements as asked for, transfers from
// and to them work, and Close gives them back.
func TestHostMemory(t *testing.T) {
	sel, err := gpustate.ParseSelect("fake")
	if err != nil {
		t.Fatal(err)
	}
	dev, err := gpustate.Open(sel)
	if err != nil {
		t.Fatal(err)
	}
	d := &Device{Device: dev}
	host, err := HostMemory[float64](d, 1001)
	if err != nil || len(host) != 1001 {
		t.Fatalf("got %d elements, %v, want 1001", len(host), err)
	}
	for i, v := range host {
		if v != 0 {
			t.Fatalf("element %d is %v", i, v)
		}
		host[i] = float64(i)
	}
	if none, err := HostMemory[int32](d, 0); err != nil || len(none) != 0 {
		t.Errorf("no elements: got %d, %v", len(none), err)
	}
	q, err := d.MainQueue()
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Buffer("b", 8*1001)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := q.WriteAsync(b, 0, gpustate.Bytes(host)); err != nil || e.Wait() != nil {
		t.Fatal(err)
	}
	back := make([]float64, 1001)
	if err := q.Read(b, 0, gpustate.Bytes(back)); err != nil || back[1000] != 1000 {
		t.Errorf("got %v, %v, want 1000", back[1000], err)
	}
	if err := d.Close(); err != nil || d.free != nil {
		t.Errorf("got %v, %d pieces left", err, len(d.free))
	}
}
