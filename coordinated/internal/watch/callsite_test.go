package watch

import (
	"strings"
	"testing"
)

// TestPrograms: a reported place is the program's, not Go's library's or Holdfast's.
func TestPrograms(t *testing.T) {
	for function, want := range map[string]bool{
		"main.main":                          true,
		"main.(*grid).step.func1":            true,
		"example.org/a/b.Run":                true,
		"time.Sleep":                         false,
		"runtime.gopark":                     false,
		"internal/poll.(*FD).Read":           false,
		modulePath + "mpiwrap.Recv[...]":     false,
		modulePath + "compat/mpi.(*Comm).Do": false,
		modulePath + "coordinated.Open":      false,
		modulePath + "apps/nbody.run":        true,
		modulePath + "mpiwrapper.Run":        true,
	} {
		if got := programs(function); got != want {
			t.Errorf("%s: %v, want %v", function, got, want)
		}
	}
	stack := "goroutine 1 [sleep]:\ntime.Sleep(0x1)\n\t/usr/local/go/src/runtime/time.go:300 +0x1\n" +
		"main.step(...)\n\t/home/u/main.go:12 +0x2\nmain.main()\n\t/home/u/main.go:5 +0x3"
	if got := programFrame(stack); got != " at /home/u/main.go:12" {
		t.Errorf("got %q, want the line of the program that sleeps", got)
	}
	begun := "goroutine 7 [running]:\ntime.Sleep(0x1)\n\t/usr/local/go/src/runtime/time.go:300 +0x1\n" +
		"created by main.main in goroutine 1\n\t/home/u/main.go:5 +0x3"
	if got := programFrame(begun); strings.Contains(got, "main.go") {
		t.Errorf("got %q, which is where the goroutine began", got)
	}
}
