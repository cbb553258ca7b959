package opencl

import (
	"strings"
	"testing"
)

// failedGate is what odd.c prints of a user event that another thread sets to an error; PoCL 3.1
// by itself hangs after one.
const failedGate = "other thread -14, failed 1 1, user's -100, again -59, called with -100\n"

// TestOdd: odd but legal calls have the effect that they have without the library: objects that
// are released while commands use them, call-backs that give commands, events that another
// thread sets, parts of mapped buffers, builds that fail, queues that wait for each other, commands that move nothing.
func TestOdd(t *testing.T) {
	l := newLab(t)
	want := strings.Replace(l.run(onPoCLItself, "odd"), "part has", failedGate+"part has", 1)
	for _, device := range []string{platform, another} {
		if got := l.run(through(device), "odd"); got != want {
			t.Errorf("HOLDFAST_DEVICE=%q: got\n%s\nwant\n%s", device, got, want)
		}
	}
}
