package connect

import (
	"slices"
	"testing"
)

// TestFirstOfEach: the first rank of a node that has the directory; ranks whose directory is not known, or is another
// node's as well, are on their own.
func TestFirstOfEach(t *testing.T) {
	m := func(b byte) (x [dirMark]byte) { x[0] = b; return x }
	nodes := []string{"a", "b", "a", "b", "a", "b", "a"}
	marks := [][dirMark]byte{m(1), m(1), m(2), m(1), m(2), m(0), m(0)}
	if got, want := firstOfEach(nodes, marks), []int{0, 1, 2, 1, 2, 5, 6}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
