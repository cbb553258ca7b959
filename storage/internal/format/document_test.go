package format_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

var update = flag.Bool("update", false, "rewrite the hex examples of docs/FORMAT.md")

const formatDoc = "../../../docs/FORMAT.md"

// exampleShard returns the shard that FORMAT.md shows.
func exampleShard(t *testing.T) ([]byte, storage.ShardInfo) {
	t.Helper()
	fsys := crashfs.New()
	f, err := fsys.Create("/x", false)
	if err != nil {
		t.Fatal(err)
	}
	w := shard.NewWriter(t.Context(), f, shard.NewPool(8), nil)
	info, _, err := shard.Write(t.Context(), w, &shard.Spec{
		Head: format.Header{Epoch: 7, Rank: 1, Size: 2, Job: "sun", Node: "n1",
			Created: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC).UnixNano()},
		Sections: []storage.Section{
			{Name: "step", Size: 5, Source: storage.Bytes("hello")},
			{Name: "zero", Size: 6, Source: storage.Bytes(make([]byte, 6))},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	b, err := level.ReadFile(fsys, "/x", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return b, info
}

// exampleLayouts returns the manifest with layouts that FORMAT.md shows.
func exampleLayouts() *format.Manifest {
	u := layout.Array{Name: "u", Type: "float64", Section: "array/u", Elem: 8, Kind: layout.Divided,
		Dims: []int64{2, 3}}
	m := &format.Manifest{Epoch: 8, Size: 2, Job: "sun", Level: storage.LevelLocal}
	for r, columns := range []layout.Span{{Start: 0, Count: 1, Stride: 2, Times: 2}, layout.Run(1, 1)} {
		l := &format.Layout{Quiet: true, Arrays: []layout.Local{{Array: u,
			Parts: []layout.Part{{Spans: [][]layout.Span{{layout.Run(0, 2)}, {columns}}}}}}}
		m.Shards = append(m.Shards, storage.ShardInfo{Rank: r, Node: "n1", Pack: format.NoPack, Layout: l})
	}
	return m
}

// exampleItems returns the section layout that FORMAT.md shows, of a rank with two sets of items.
func exampleItems(t *testing.T) []byte {
	key := func(i int64, s string, bytes int64) layout.Item {
		return layout.Item{Key: layout.Key{Int: i, Str: s}, Bytes: bytes}
	}
	l := &format.Layout{Quiet: true, Arrays: []layout.Local{
		{Array: layout.Array{Name: "a", Type: "map[int64][]float32", Section: "array/a", Elem: 4,
			Kind: layout.KeyedInt},
			Items: []layout.Item{key(-3, "", 8), key(-2, "", 0), key(300, "", 4000)}},
		{Array: layout.Array{Name: "b", Type: "map[string]int64", Section: "array/b", Elem: 8,
			Kind: layout.KeyedString},
			Items: []layout.Item{key(0, "in", 8), key(0, "out", 8)}}}}
	b, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func examples(t *testing.T) map[string][]byte {
	shard, info := exampleShard(t)
	info.Rank, info.Origins = 0, []storage.Epoch{5}
	m := format.Manifest{Epoch: 7, Size: 1, Job: "sun", Level: storage.LevelGlobal, Shards: []storage.ShardInfo{info}}
	return map[string][]byte{
		"marker": (&format.Marker{Job: "sun", Size: 2, Level: storage.LevelLocal}).Encode(),
		"owned": (&format.Marker{Job: "sun", Size: 2, Level: storage.LevelLocal,
			Run: storage.Identity{ID: [16]byte{0x3f, 0x2a}, Began: 1_700_000_000_000_000_000}}).Encode(),
		"shard":    shard,
		"manifest": m.Encode(),
		"layouts":  exampleLayouts().Encode(),
		"items":    exampleItems(t),
		"ledger": (&format.Ledger{Rank: 1, Node: "n1", Levels: []format.LedgerLevel{
			{Name: storage.LevelLocal, Keep: 2,
				Epochs: []format.LedgerEpoch{{Epoch: 7, Files: []string{format.ShardName(1)}}}},
			{Name: storage.LevelGlobal, Keep: 2, KeepEvery: 100, Epochs: []format.LedgerEpoch{{Epoch: 7}}}}}).Encode(),
	}
}

var hexBlock = regexp.MustCompile("(?s)```hex (\\w+)\n(.*?)```")

func TestFormatDocument(t *testing.T) {
	doc, err := os.ReadFile(formatDoc)
	if err != nil {
		t.Fatal(err)
	}
	want := examples(t)
	if *update {
		doc = hexBlock.ReplaceAllFunc(doc, func(b []byte) []byte {
			name := string(hexBlock.FindSubmatch(b)[1])
			return []byte("```hex " + name + "\n" + dump(want[name]) + "```")
		})
		if err := os.WriteFile(formatDoc, doc, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	shown := map[string][]byte{}
	for _, m := range hexBlock.FindAllSubmatch(doc, -1) {
		shown[string(m[1])] = undump(t, string(m[2]))
	}
	for name, b := range want {
		if !bytes.Equal(shown[name], b) {
			t.Errorf("example %q of %s is not what is written now:\n%s", name, formatDoc, dump(b))
		}
	}
	decodeExamples(t, shown)
}

func decodeExamples(t *testing.T, shown map[string][]byte) {
	t.Helper()
	m, err := format.DecodeMarker("doc", shown["marker"])
	if err != nil || *m != (format.Marker{Job: "sun", Size: 2, Level: storage.LevelLocal}) {
		t.Errorf("marker: got %+v, %v", m, err)
	}
	if m, err := format.DecodeMarker("doc", shown["owned"]); err != nil || m.Run.Short() != "3f2a0000" {
		t.Errorf("marker with an identity: got %+v, %v", m, err)
	}
	man, err := format.DecodeManifest("doc", shown["manifest"])
	if err != nil || man.Epoch != 7 || man.Job != "sun" || man.Shards[0].Node != "n1" || man.Shards[0].Bytes != 11 {
		t.Errorf("manifest: got %+v, %v", man, err)
	}
	with, err := format.DecodeManifest("doc", shown["layouts"])
	if err != nil || with.Check() != nil || with.Shards[0].Layout.Arrays[0].Elems() != 4 {
		t.Errorf("layouts: got %+v, %v", with, err)
	}
	items, err := format.DecodeLayout("doc", 0, shown["items"])
	if err != nil || len(items.Arrays) != 2 || items.Arrays[0].Items[2].Key.Int != 300 ||
		items.Arrays[0].Elems() != 1002 || items.Arrays[1].Items[1].Key.Str != "out" {
		t.Errorf("items: got %+v, %v", items, err)
	}
	shard := shown["shard"]
	h, err := format.DecodeHeader("doc", shard[:format.HeaderLen])
	if err != nil || h.Job != "sun" || h.Node != "n1" || h.Rank != 1 {
		t.Errorf("header: got %+v, %v", h, err)
	}
	f, err := format.ReadFooter("doc", bytes.NewReader(shard), int64(len(shard)))
	if err != nil {
		t.Fatal(err)
	}
	x, err := format.ReadIndex("doc", bytes.NewReader(shard), f)
	if err != nil {
		t.Fatal(err)
	}
	c := x.Chunks[0]
	if string(shard[c.Off:c.Off+int64(c.Stored)]) != "hello" || x.Chunks[1].Codec != format.CodecZero {
		t.Errorf("chunks: got %+v", x.Chunks)
	}
}

// dump writes lines of offset and 16 bytes in groups of 4, without the lines that are zero.
func dump(b []byte) string {
	var s strings.Builder
	for i := 0; i < len(b); i += 16 {
		line := b[i:min(i+16, len(b))]
		if format.NonZero(line) >= 0 || i+16 >= len(b) {
			fmt.Fprintf(&s, "%05x:", i)
			for word := range slices.Chunk(line, 8) {
				fmt.Fprintf(&s, " %x", word)
			}
			s.WriteByte('\n')
		}
	}
	return s.String()
}

func undump(t *testing.T, s string) []byte {
	t.Helper()
	var out []byte
	for line := range strings.Lines(s) {
		at, data, ok := strings.Cut(line, ":")
		off, err := strconv.ParseInt(at, 16, 64)
		if !ok || err != nil {
			t.Fatalf("line %q", line)
		}
		b, err := hex.DecodeString(strings.Join(strings.Fields(data), ""))
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, make([]byte, int(off)-len(out))...)
		out = append(out, b...)
	}
	return out
}
