package opencl

import (
	"strings"
	"testing"
)

// TestTimes: the program can ask when a command of any kind ran, once it knows that the command is complete: because
// it waited for it, or for what comes after it. One that was held back was queued when the program gave it.
func TestTimes(t *testing.T) {
	l := newLab(t)
	want := l.run(without, "times")
	if strings.Contains(want, "not in order") || strings.Contains(want, "queued after") {
		t.Fatalf("PoCL's times:\n%s", want)
	}
	l.serve()
	for _, device := range []string{platform, another, "remote=" + l.socket() + "," + platform,
		"remote=" + l.socket() + "," + another} {
		if got := l.run(through(device), "times"); got != want {
			t.Errorf("HOLDFAST_DEVICE=%q: got\n%s\nwant\n%s", device, got, want)
		}
	}
}
