package coordinated

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
)

// passDown has what rank 0 found go down the tree of n ranks; ended: those whose program has gone.
func passDown(t *testing.T, n, fanout int, first *overviews, ended map[int]bool) (heard []*overviews, errs []error) {
	t.Helper()
	net, nodes := connecttest.NewNet(n), make([]string, n)
	for r := range nodes {
		nodes[r] = fmt.Sprint("node", r/2)
	}
	heard, errs = make([]*overviews, n), make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			plane, topo, o := net.Plane(r), connect.Place(r, nodes, fanout), first
			if r > 0 {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if ended[r] {
					cancel(errEnded)
				}
				if o, errs[r] = hearOverviews(ctx, plane, topo); o == nil {
					o = &overviews{}
				}
			}
			heard[r] = o
			errs[r] = errors.Join(errs[r], o.tell(plane, topo))
		})
	}
	all.Wait()
	for r := range n {
		_ = net.Plane(r).Close() // one of a test
	}
	return heard, errs
}

var errEnded = errors.New("the program has ended")

// TestOverviewReachesAll: every rank hears what is common and its own part, in one message or in
// many, however the tree is.
func TestOverviewReachesAll(t *testing.T) {
	const n = 11
	for _, common := range []int{0, 5, 2*overviewPiece + 1} {
		for _, fanout := range []int{1, 2, 16} {
			first := &overviews{found: true, common: bytes.Repeat([]byte{7}, common), own: map[int][]byte{}}
			for r := 1; r < n; r++ {
				first.own[r] = []byte(strings.Repeat(fmt.Sprint(r), r%3)) // that of rank 3 is empty
			}
			heard, errs := passDown(t, n, fanout, first, nil)
			for r := 1; r < n; r++ {
				if errs[r] != nil || !heard[r].found || !bytes.Equal(heard[r].common, first.common) ||
					!bytes.Equal(heard[r].own[r], first.own[r]) {
					t.Errorf("fanout %d: rank %d has %d bytes and %q of its own (%v), want %d and %q", fanout, r,
						len(heard[r].common), heard[r].own[r], errs[r], common, first.own[r])
				}
			}
		}
	}
}

// TestOverviewOfNothing: no rank waits for ever where rank 0 could not look, or where one above
// has gone; nobody takes that for an empty directory.
func TestOverviewOfNothing(t *testing.T) {
	heard, errs := passDown(t, 7, 2, &overviews{}, nil)
	for r := range heard {
		if errs[r] != nil || heard[r].found {
			t.Errorf("rank %d: found %t, error %v, want neither", r, heard[r].found, errs[r])
		}
	}
}

// TestOverviewOfTheEnded: those below a rank that has gone hear that nothing is found.
func TestOverviewOfTheEnded(t *testing.T) {
	first := &overviews{found: true, own: map[int][]byte{}}
	const gone = 2 // the first of its node: rank 3 is below it, and ranks 4 and 5 of the next node
	heard, errs := passDown(t, 6, 1, first, map[int]bool{gone: true})
	// It may have been told before it saw that its program is gone.
	for r := gone; r < 6; r++ {
		if told := errs[gone] == nil; heard[r].found != told || r > gone && errs[r] != nil {
			t.Errorf("rank %d: found %t, error %v; rank %d has %v", r, heard[r].found, errs[r], gone, errs[gone])
		}
	}
	if errs[gone] != nil && !errors.Is(errs[gone], errEnded) {
		t.Errorf("rank %d fails with %v, want %v", gone, errs[gone], errEnded)
	}
}

// TestOverviewTruncated refuses bytes that end too early.
func TestOverviewTruncated(t *testing.T) {
	o := &overviews{found: true, common: []byte("common"), own: map[int][]byte{1: []byte("one"), 2: []byte("two")}}
	b := o.encode([]int{1, 2})[8:]
	whole := map[int]bool{1 + 1 + 6: true, 1 + 1 + 6 + 1 + 1 + 3: true, len(b): true} // between two parts
	for n := range len(b) + 1 {
		if got, err := decodeOverviews(b[:n]); (err == nil) != whole[n] {
			t.Errorf("%d of %d bytes: %v, %v", n, len(b), got, err)
		}
	}
}
