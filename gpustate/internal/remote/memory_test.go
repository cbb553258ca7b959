package remote

import "testing"

// TestRegion: a transfer takes the short way only when all of its bytes lie in one
// piece of shared memory.
func TestRegion(t *testing.T) {
	all := make([]byte, 400)
	var m memory
	if _, _, ok := m.region(all); ok {
		t.Error("found without any memory")
	}
	m.list.Store(&[]region{{id: 7, host: all[100:200]}, {id: 8, host: all[200:300]}})
	for _, c := range []struct {
		from, to int
		id       uint64
		at       int64
	}{
		{100, 200, 7, 0}, {150, 200, 7, 50}, {199, 200, 7, 99}, {200, 201, 8, 0}, {299, 300, 8, 99},
		{99, 200, 0, 0}, {99, 101, 0, 0}, {150, 201, 0, 0}, {100, 300, 0, 0}, {299, 301, 0, 0},
		{300, 301, 0, 0}, {0, 400, 0, 0}, {0, 100, 0, 0}, {150, 150, 0, 0},
	} {
		id, at, ok := m.region(all[c.from:c.to])
		if id != c.id || at != c.at || ok != (c.id != 0) {
			t.Errorf("bytes %d to %d: got memory %d at %d, %v, want %d at %d", c.from, c.to, id, at, ok, c.id, c.at)
		}
	}
}
