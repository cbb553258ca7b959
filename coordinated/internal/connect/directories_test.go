package connect_test

import (
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// marked are ranks whose directories have marks that begin with these bytes.
type marked struct {
	connect.Ranks
	marks []byte
}

func (m marked) Size() int { return len(m.marks) }

func (m marked) Allgather(all, mine []byte) error {
	for r, b := range m.marks {
		all[r*len(mine)] = b
	}
	return nil
}

// TestWriters: the first rank of a node that has the directory; ranks whose directory is not known, or is another
// node's as well, are on their own.
func TestWriters(t *testing.T) {
	d := connect.Directories{Ranks: marked{marks: []byte{1, 1, 2, 1, 2, 0, 0}}, Files: vfs.OS{},
		Topology: &connect.Topology{Nodes: []string{"a", "b", "a", "b", "a", "b", "a"}}}
	got, err := d.Writers([]string{"local"}, map[string]string{"local": t.TempDir()})
	if want := []int{0, 1, 2, 1, 2, 5, 6}; err != nil || !slices.Equal(got["local"], want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
