package invariants

import "testing"

func TestCheck(t *testing.T) {
	Check(true, "holds")
	defer func() {
		got, _ := recover().(string)
		want := ""
		if Enabled {
			want = "invariant broken: 3 is not 4"
		}
		if got != want {
			t.Errorf("got panic %q, want %q", got, want)
		}
	}()
	Check(false, "%d is not %d", 3, 4)
}
