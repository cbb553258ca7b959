package coordinated

import (
	"fmt"
	"testing"
)

// TestWhoRequeues: the first rank of each of the first nodes, however the ranks are
// placed.
func TestWhoRequeues(t *testing.T) {
	for _, c := range []struct {
		nodes []string
		n     int
		want  string
	}{
		{[]string{"a", "a", "b", "b", "c"}, 2, "[0 2]"},
		{[]string{"a", "b", "a", "b", "c"}, 9, "[0 1 4]"},
		{[]string{"a"}, 1, "[0]"},
	} {
		var got []int
		for r := range c.nodes {
			if top := (&topology{nodes: c.nodes}); top.speaks(r, c.n) {
				got = append(got, r)
			}
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v, %d nodes: got ranks %v, want %s", c.nodes, c.n, got, c.want)
		}
	}
}

// TestSupervisorWords: what a supervisor sets is what a rank reads.
func TestSupervisorWords(t *testing.T) {
	s, err := Supervise("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.RequeueJob = "12_3"
	for _, lost := range []bool{false, true} {
		v, err := parseSupervisor(s.Var(lost)[len(SupervisorVar)+1:])
		if err != nil || v.nodeLost != lost || v.requeue != "12_3" || v.addr != s.plane.Addr() || v.key != s.key {
			t.Errorf("lost %v: got %+v, %v", lost, v, err)
		}
	}
}
