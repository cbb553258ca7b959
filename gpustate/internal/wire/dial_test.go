package wire

import "testing"

// TestTrustedUser: another user's server is not talked to.
func TestTrustedUser(t *testing.T) {
	for _, c := range []struct {
		theirs, ours int
		want         bool
	}{{1000, 1000, true}, {0, 1000, true}, {1001, 1000, false}} {
		if got := trustedUser(c.theirs, c.ours) == nil; got != c.want {
			t.Errorf("user %d at a socket of %d: trusted %v, want %v", c.theirs, c.ours, got, c.want)
		}
	}
}
