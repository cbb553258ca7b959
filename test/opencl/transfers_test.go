package opencl

import "testing"

// TestTransfers: large transfers that do not block, boxes and rows of images bring the bytes that
// they bring without the library.
func TestTransfers(t *testing.T) {
	l := newLab(t)
	want := l.run(without, "transfers")
	l.serve()
	for _, device := range []string{"pocl", "rusticl", ""} {
		if got := l.run(through(device), "transfers"); got != want {
			t.Errorf("HOLDFAST_DEVICE=%q: got\n%s\nwant\n%s", device, got, want)
		}
	}
}
