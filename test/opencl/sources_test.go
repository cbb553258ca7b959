package opencl

import "testing"

// TestSources: sources without a kernel, long ones, in many pieces, with many kernels, and with words that only seem
// to need what the device has not got, become what they become without the library.
func TestSources(t *testing.T) {
	l := newLab(t)
	want := l.run(without, "sources")
	for _, device := range []string{"pocl", "rusticl"} {
		if got := l.run(through(device), "sources"); got != want {
			t.Errorf("HOLDFAST_DEVICE=%q: got\n%s\nwant\n%s", device, got, want)
		}
	}
}
