package jobtest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
)

// Resized runs a program with -elastic on three ranks until a checkpoint stops it, continues it on two until the next
// one, each after so many steps or soon after, and on four up to its end. It returns the output of the last start.
// start runs the program with further flags.
func Resized(t *testing.T, after int, start func(ranks int, flags string) ([]byte, error)) []byte {
	t.Helper()
	flags := " -elastic -global " + t.TempDir()
	for _, ranks := range []int{3, 2} {
		if _, err := start(ranks, flags+fmt.Sprint(" -stop-after ", after)); !errors.Is(err, coordinated.ErrStop) {
			t.Fatalf("on %d ranks: got %v, want a stop after a checkpoint", ranks, err)
		}
	}
	out, err := start(4, flags)
	if err != nil {
		t.Fatalf("on 4 ranks: %v", err)
	}
	return out
}
