package opencl

import "testing"

// TestTransfers: large transfers that do not block, boxes and rows of images bring the bytes that
// they bring without the library.
func TestTransfers(t *testing.T) {
	l := newLab(t)
	want := l.run(onPoCLItself, "transfers")
	l.serve()
	for _, device := range []string{platform, another, ""} {
		if got := l.run(through(device), "transfers"); got != want {
			t.Errorf("HOLDFAST_DEVICE=%q: got\n%s\nwant\n%s", device, got, want)
		}
	}
}

// TestOverlap: copies of boxes within a buffer are refused where they share a byte, and only there.
func TestOverlap(t *testing.T) {
	l := newPoCLLab(t)
	if got, want := l.run(through(platform), "overlap"), "2593 overlap, 2407 do not\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
