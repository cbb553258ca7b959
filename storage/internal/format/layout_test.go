package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/layout"
)

// exampleLayout returns the example layout of one of two ranks.
func exampleLayout(rank int) *Layout {
	start := int64(rank) * 4
	step := layout.Local{Array: layout.Array{Name: "step", Type: "int", Elem: 8, Dims: []int64{1},
		Kind: layout.Replicated, Section: "array/step"}, Sum: Hash([]byte("step"))}
	if rank == 0 {
		step.Parts = []layout.Part{layout.Box([]int64{0}, []int64{1})}
	}
	cells := layout.Local{Array: layout.Array{Name: "cells", Type: "map[int][]int16", Elem: 2, Kind: layout.KeyedInt,
		Section: "array/cells"}}
	for _, k := range []int64{math.MinInt64, -1 << 40, -2, 0, 2, 1000, 1 << 62, math.MaxInt64 - 1} {
		cells.Items = append(cells.Items, layout.Item{Key: layout.Key{Int: k + int64(rank)}, Bytes: (k & 0xfff) * 2})
	}
	names := layout.Local{Array: layout.Array{Name: "names", Type: "map[string]int16", Elem: 2,
		Kind: layout.KeyedString, Section: "array/names"}}
	for _, k := range []string{"", "a", strings.Repeat("k", layout.MaxKeyLen-2)}[rank:] {
		names.Items = append(names.Items, layout.Item{Key: layout.Key{Str: k + fmt.Sprint(rank)}, Bytes: 2})
	}
	return &Layout{Quiet: true, Arrays: []layout.Local{step, {
		Array: layout.Array{Name: "u", Type: "float64", Elem: 8, Dims: []int64{8, 10}, Kind: layout.Divided,
			Section: "array/u"},
		Parts: []layout.Part{
			layout.Box([]int64{start, 0}, []int64{4, 6}),
			{Spans: [][]layout.Span{{layout.Run(start, 4)}, {{Start: 6, Count: 1, Stride: 2, Times: 2}}}},
			{Spans: [][]layout.Span{{layout.Run(start, 4)}, {{Start: 7, Count: 1, Stride: 2, Times: 2}}}},
		}}, cells, names}}
}

func encoded(t testing.TB, l *Layout) []byte {
	t.Helper()
	b, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func exampleManifest() *Manifest {
	m := &Manifest{Epoch: 3, Size: 2, Job: "j", Level: LevelLocal}
	for r := range m.Size {
		m.Shards = append(m.Shards, ShardInfo{Rank: r, Pack: NoPack, Layout: exampleLayout(r)})
	}
	return m
}

// TestManifestVersions: layouts make a manifest one of version 2; without them its bytes are those of version 1.
func TestManifestVersions(t *testing.T) {
	m := exampleManifest()
	b := m.Encode()
	if b[10] != 2 {
		t.Errorf("got version %d, want 2", b[10])
	}
	back, err := DecodeManifest("m", b)
	if err != nil || !reflect.DeepEqual(back, m) {
		t.Fatalf("got %+v, %v, want %+v", back, err, m)
	}
	if err := back.Check(); err != nil {
		t.Error(err)
	}
	for r := range m.Shards {
		m.Shards[r].Layout = nil
	}
	plain := m.Encode()
	if plain[10] != 1 || !bytes.Equal(plain[RecordHead:len(plain)-4], b[RecordHead:len(plain)-4]) {
		t.Errorf("a manifest without layouts has version %d, or other fields than with them", plain[10])
	}
	b[10] = 4
	sealed := append(b[:len(b)-4:len(b)-4], 0, 0, 0, 0)
	for i, crc := 0, CRC(sealed[:len(sealed)-4]); i < 4; i++ {
		sealed[len(sealed)-4+i] = byte(crc >> (8 * i))
	}
	var version *VersionError
	if _, err := DecodeManifest("m", sealed); !errors.As(err, &version) || version.Have != 4 || version.Known != 3 {
		t.Errorf("version 4: got %v, want a *VersionError", err)
	}
}

// TestManifestCheck: ranks that do not fit together are refused by name.
func TestManifestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(m *Manifest)
		want  any
	}{
		"shifted": {func(m *Manifest) { m.Shards[1].Layout.Arrays[1].Parts[0].Spans[0][0].Start-- },
			new(*layout.OverlapError)},
		"a part is gone": {func(m *Manifest) {
			a := &m.Shards[1].Layout.Arrays[1]
			a.Parts = a.Parts[:2]
		}, new(*layout.HoleError)},
		"another type": {func(m *Manifest) { m.Shards[1].Layout.Arrays[1].Type = "int64" }, new(*layout.DiffersError)},
		"other dimensions": {func(m *Manifest) { m.Shards[1].Layout.Arrays[1].Dims = []int64{8, 11} },
			new(*layout.DiffersError)},
		"not at a rank": {func(m *Manifest) { m.Shards[1].Layout.Arrays = m.Shards[1].Layout.Arrays[:1] },
			new(*layout.ShapeError)},
		"a key twice": {func(m *Manifest) { m.Shards[1].Layout.Arrays[2].Items[3].Key.Int = 0 },
			new(*layout.DuplicateError)},
		"a string twice": {func(m *Manifest) { m.Shards[1].Layout.Arrays[3].Items[0].Key.Str = "0" },
			new(*layout.DuplicateError)},
		"other values": {func(m *Manifest) { m.Shards[1].Layout.Arrays[0].Sum[3]++ }, new(*layout.DiffersError)},
	} {
		t.Run(name, func(t *testing.T) {
			m := exampleManifest()
			c.spoil(m)
			if err := m.Check(); !errors.As(err, c.want) {
				t.Errorf("got %v, want a %T", err, c.want)
			}
		})
	}
}

// TestShardInfoCarriesLayout: votes carry the layout, and an entry agrees with its shard's index alone.
func TestShardInfoCarriesLayout(t *testing.T) {
	in := ShardInfo{Rank: 1, Pack: NoPack, Layout: exampleLayout(1)}
	b, err := in.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var out ShardInfo
	if err := out.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(in, out) {
		t.Fatalf("got %+v, %v, want %+v", out, err, in)
	}
	sec := encoded(t, in.Layout)
	x := &Index{ChunkBytes: ChunkBytes, Sections: []Section{{Name: LayoutSection, Size: int64(len(sec))}},
		Chunks: []Chunk{{Length: uint32(len(sec)), Hash: Hash(sec)}}}
	if !Agrees(out.Layout, x) {
		t.Error("the entry does not agree with its shard")
	}
	out.Layout.Arrays[1].Dims[0] = 9
	if Agrees(out.Layout, x) {
		t.Error("an entry with other dimensions agrees with the shard")
	}
	out.Layout = nil
	if Agrees(out.Layout, x) {
		t.Error("an entry without a layout agrees with a shard that has one")
	}
}

// TestItemsThatCannotBe: a layout whose items are out of order, twice, or written in another way than its only one is
// refused.
func TestItemsThatCannotBe(t *testing.T) {
	set := layout.Local{Array: layout.Array{Name: "s", Type: "map[int]int16", Elem: 2, Kind: layout.KeyedInt,
		Section: "array/s"}}
	for _, k := range []int64{5, 7} {
		set.Items = append(set.Items, layout.Item{Key: layout.Key{Int: k}, Bytes: 2})
	}
	good := encoded(t, &Layout{Quiet: true, Arrays: []layout.Local{set}})
	if _, err := DecodeLayout("l", 0, good); err != nil {
		t.Fatal(err)
	}
	body := good[:len(good)-4] // up to the items: key, elements, key, elements
	for name, items := range map[string][]byte{
		"the same key":     {10, 1, 0, 1},
		"over the end":     append([]byte{10, 1}, append(binary.AppendUvarint(nil, math.MaxUint64), 1)...),
		"a long form":      {0x8a, 0, 1, 2, 1},
		"too many bytes":   append([]byte{10, 1, 2}, binary.AppendUvarint(nil, 1<<61)...),
		"cut short":        {10, 1, 2},
		"more than it has": {10, 1, 2, 1, 2, 1},
	} {
		l, err := DecodeLayout("l", 0, append(slices.Clone(body), items...))
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %+v, %v, want it refused", name, l, err)
		}
	}
}
