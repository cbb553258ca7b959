package pause

import (
	"slices"
	"strings"
	"testing"
)

// id returns the UUID of GPU n.
func id(n string) string { return strings.Repeat("0", 31) + n }

// TestMoves: each device of the node gets a place, and no place is taken twice.
func TestMoves(t *testing.T) {
	see := func(text string) (d []device) {
		for _, f := range strings.Fields(text) {
			n, used := strings.CutSuffix(f, "+")
			d = append(d, device{id(n), used})
		}
		return d
	}
	for _, c := range []struct{ moves, sees, node, want, wrong string }{
		{"=1", "0+", "0 1 2", "0=1 1=0 2=2;0=1", ""},
		{"=1", "0+ 1", "0 1", "0=1 1=0", ""},
		{"=0", "0+", "0 1", "0=0 1=1;0=0", ""},
		{"=5", "0+", "", "0=5", ""},
		{"0=1,1=0", "0+", "0 1", "0=1 1=0;0=1", ""},
		{"0=1,1=2", "0+ 1+ 2", "0 1 2", "0=1 1=2 2=0", "two of its GPUs"},
		{"0=2,1=2", "0+ 1+", "0 1 2", "", "two of its GPUs"},
		{"=1", "0+ 1+", "0 1", "", "it uses 2 GPUs"},
		{"=1", "0 1", "0 1", "", "it uses 0 GPUs"},
		{"3=1", "0+", "0 1", "0=0 1=1;0=0", ""},
	} {
		m := &Moves{to: map[string]string{}}
		for _, n := range strings.Fields(c.node) {
			m.machine = append(m.machine, id(n))
		}
		for pair := range strings.SplitSeq(c.moves, ",") {
			from, to, _ := strings.Cut(pair, "=")
			if from != "" {
				from = id(from)
			}
			m.to[from] = id(to)
		}
		lines, err := m.lines(see(c.sees))
		if c.wrong != "" && err != nil && strings.Contains(err.Error(), c.wrong) {
			continue
		}
		var got []string
		for _, l := range lines {
			got = append(got, strings.NewReplacer(strings.Repeat("0", 31), "", "resume ", "", ",", " ").Replace(l))
		}
		if err != nil || !slices.Equal(got, strings.Split(c.want, ";")) {
			t.Errorf("%s of %s on %s: got %q, %v, want %q %s", c.moves, c.sees, c.node, got, err, c.want, c.wrong)
		}
	}
	if lines, err := (*Moves)(nil).lines(see("0+")); err != nil || !slices.Equal(lines, []string{"resume"}) {
		t.Errorf("no move: got %q, %v", lines, err)
	}
}

// TestParseMoves reads what people write.
func TestParseMoves(t *testing.T) {
	const a, b = "GPU-1013152F-037f-bacd-b14e-60566545b299", "GPU-43e2c0df-dabc-cf59-c9af-9b59c62a57e5"
	m, err := ParseMoves(t.Context(), a+"="+b)
	if err != nil || m.to["1013152f037fbacdb14e60566545b299"] != "43e2c0dfdabccf59c9af9b59c62a57e5" {
		t.Errorf("got %v, %v", m, err)
	}
	for _, wrong := range []string{"", "x", "-1", "GPU-12", a + "=", "=" + a + "x",
		a + "=" + b + "," + a + "=" + a, "99"} {
		if m, err := ParseMoves(t.Context(), wrong); err == nil {
			t.Errorf("%q: got %v", wrong, m)
		}
	}
}

// TestFind: a process without the library is no CUDA program, and init has no parent.
func TestFind(t *testing.T) {
	if found, err := Find([]int{1 << 30}); err == nil || !strings.Contains(err.Error(), "there is no process") {
		t.Errorf("got %v, %v", found, err)
	}
	if _, err := open(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "run --cuda") {
		t.Errorf("got %v", err)
	}
	for parents, want := range map[*map[int]int]bool{{5: 4, 4: 3, 3: 1, 1: 0}: true, {5: 6, 6: 5}: false, {}: false} {
		if got := below(*parents, 5, 3); got != want {
			t.Errorf("%v: got %v", parents, got)
		}
	}
}
