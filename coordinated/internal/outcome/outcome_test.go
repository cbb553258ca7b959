package outcome

import (
	"strings"
	"testing"
)

// TestRanksErrorGroups: a reason that several ranks have is said once.
func TestRanksErrorGroups(t *testing.T) {
	e := &RanksError{Op: "open", Failed: []RankFailure{{0, "no room"}, {1, "no such directory"}, {2, "no room"}}}
	const want = "open failed on 3 rank(s); ranks 0,2: no room; rank 1: no such directory"
	if got := e.Error(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	all := Failed("open", []string{"no room", "no room"}, nil)
	if got, want := all.Error(), "open: no room"; got != want {
		t.Errorf("the same on all ranks: got %q, want %q", got, want)
	}
	some := Failed("open", []string{"no room", "", "no room", ""}, nil)
	if got, want := some.Error(), "open: ranks 0,2: no room"; got != want {
		t.Errorf("the same on some ranks: got %q, want %q", got, want)
	}
	e.Failed = nil
	for r := range 9 {
		e.Failed = append(e.Failed, RankFailure{r, string(rune('a' + r))})
	}
	if got := e.Error(); !strings.HasSuffix(got, "rank 3: d; and 5 more reasons") {
		t.Errorf("got %q, want four reasons and how many more", got)
	}
}
