package redundancy_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
)

func nodesFor(counts ...int) []string {
	var out []string
	for n, c := range counts {
		for range c {
			out = append(out, fmt.Sprintf("n%d", n))
		}
	}
	return out
}

// TestFits: what a level refuses at the first epoch can be told before. Copies
// take any placement on enough nodes.
func TestFits(t *testing.T) {
	parity, partner := storage.LevelConfig{Name: storage.LevelParity, Data: 2,
		Parity: 1}, storage.LevelConfig{Name: storage.LevelPartner, Copies: 1}
	for _, c := range []struct {
		level storage.LevelConfig
		nodes []string
		fits  bool
	}{
		{parity, nodesFor(2, 2, 2), true},
		{parity, nodesFor(2, 2, 1), false},
		{parity, nodesFor(5), false},
		{partner, nodesFor(3, 1), true},
		{partner, nodesFor(1, 1, 4), true},
		{partner, nodesFor(4), false},
		{storage.LevelConfig{Name: storage.LevelGlobal}, nodesFor(4), true},
	} {
		err := c.level.Fits(c.nodes)
		if (err == nil) != c.fits {
			t.Errorf("%s on %v: got %v, want it to fit: %t", c.level.Name, c.nodes, err, c.fits)
		}
	}
}
