package child

import (
	"os"
	"slices"
	"testing"
)

// TestBelow: init has no parent, and parents that were looked at one after the other may go round.
func TestBelow(t *testing.T) {
	for parents, want := range map[*Parents]bool{{5: 4, 4: 3, 3: 1, 1: 0}: true, {5: 6, 6: 5}: false, {}: false} {
		if got := parents.Below(5, 3); got != want {
			t.Errorf("%v: got %v", parents, got)
		}
	}
}

// TestTree: this process is a child of its parent, and below it.
func TestTree(t *testing.T) {
	here, parent := os.Getpid(), os.Getppid()
	if got := Children(parent); !slices.Contains(got, here) {
		t.Errorf("got %v, want %d among the children of %d", got, here, parent)
	}
	if got := Tree(parent); got[0] != parent || !slices.Contains(got, here) {
		t.Errorf("got %v, want %d first and %d among them", got, parent, here)
	}
}
