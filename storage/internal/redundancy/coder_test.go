package redundancy

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// manifestOnly is a place that has the manifest of a group, and none of its parts.
type manifestOnly struct{ m *format.Manifest }

func (p manifestOnly) Manifest(context.Context, format.Epoch) (*format.Manifest, error) {
	return p.m, nil
}

func (p manifestOnly) Member(context.Context, format.Epoch, format.ShardInfo) (*shard.Extent, error) {
	return nil, errNoPart
}

func (p manifestOnly) Row(context.Context, format.Epoch, format.RowID, []byte) (*shard.Copy, error) {
	return nil, errNoPart
}

// TestWithoutCoder: a program that does not import storage/parity neither writes rows nor computes a shard, and gets an
// error that names the package to import.
func TestWithoutCoder(t *testing.T) {
	before := newCoder
	defer func() { newCoder = before }()
	newCoder = nil
	m := &format.Manifest{Epoch: 7, Size: 3, Job: "job", Level: format.LevelParity, Data: 2, Parity: 1}
	for r, node := range []string{"a", "b", "c"} {
		m.Shards = append(m.Shards, format.ShardInfo{Rank: r, Node: node, ShardBytes: 3 << 20, Pack: format.NoPack})
	}
	st, err := StripeIn(m, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = Encode(t.Context(), manifestOnly{m}, m, NewGroup(m, st), 1, []int{0},
		func(context.Context, int, []shard.Section) error { t.Error("a row is written"); return nil })
	if !errors.Is(err, ErrNoImport) {
		t.Errorf("encode: got %v, want %v", err, ErrNoImport)
	}
	for _, s := range Sources(manifestOnly{m}, 0) {
		if x, err := s.Locate(t.Context(), 7, 0); !errors.Is(err, ErrNoImport) {
			t.Errorf("compute: got %v and %v, want %v", x, err, ErrNoImport)
		}
	}
}
