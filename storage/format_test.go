package storage

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
)

var update = flag.Bool("update", false, "rewrite the hex examples of docs/FORMAT.md")

const formatDoc = "../docs/FORMAT.md"

// exampleShard is the shard that FORMAT.md shows.
func exampleShard(t *testing.T) ([]byte, ShardInfo) {
	t.Helper()
	fsys := crashfs.New()
	f, err := fsys.Create("/x", false)
	if err != nil {
		t.Fatal(err)
	}
	w := newBlockWriter(t.Context(), f, testPool, nil)
	info, _, err := writeShard(t.Context(), w, &shardSpec{
		head: shardHeader{epoch: 7, rank: 1, size: 2, job: "sun", node: "n1",
			created: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)},
		sections: []Section{
			{Name: "step", Size: 5, Source: Bytes("hello")},
			{Name: "zero", Size: 6, Source: Bytes(make([]byte, 6))},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.finish(); err != nil {
		t.Fatal(err)
	}
	b, err := readFile(fsys, "/x", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return b, info
}

func examples(t *testing.T) map[string][]byte {
	shard, info := exampleShard(t)
	info.Rank, info.origins = 0, []Epoch{5}
	m := manifest{epoch: 7, size: 1, job: "sun", level: LevelGlobal, shards: []ShardInfo{info}}
	return map[string][]byte{
		"marker":   (&marker{job: "sun", size: 2, level: LevelLocal}).encode(),
		"shard":    shard,
		"manifest": m.encode(),
		"ledger": (&ledger{rank: 1, node: "n1", levels: []ledgerLevel{
			{name: LevelLocal, keep: 2, epochs: []ledgerEpoch{{epoch: 7, files: []string{shardName(1)}}}},
			{name: LevelGlobal, keep: 2, keepEvery: 100, epochs: []ledgerEpoch{{epoch: 7}}}}}).encode(),
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
	m, err := decodeMarker("doc", shown["marker"])
	if err != nil || *m != (marker{"sun", 2, LevelLocal}) {
		t.Errorf("marker: got %+v, %v", m, err)
	}
	man, err := decodeManifest("doc", shown["manifest"])
	if err != nil || man.epoch != 7 || man.job != "sun" || man.shards[0].Node != "n1" || man.shards[0].Bytes != 11 {
		t.Errorf("manifest: got %+v, %v", man, err)
	}
	shard := shown["shard"]
	h, err := decodeHeader("doc", shard[:shardHeaderLen])
	if err != nil || h.job != "sun" || h.node != "n1" || h.rank != 1 {
		t.Errorf("header: got %+v, %v", h, err)
	}
	f, err := readFooter("doc", bytes.NewReader(shard), int64(len(shard)))
	if err != nil {
		t.Fatal(err)
	}
	x, err := readIndex("doc", bytes.NewReader(shard), f)
	if err != nil {
		t.Fatal(err)
	}
	if c := x.chunks[0]; string(shard[c.off:c.off+int64(c.stored)]) != "hello" || x.chunks[1].codec != codecZero {
		t.Errorf("chunks: got %+v", x.chunks)
	}
}

// dump writes lines of offset and 16 bytes, without the lines that are zero.
func dump(b []byte) string {
	var s strings.Builder
	for i := 0; i < len(b); i += 16 {
		line := b[i:min(i+16, len(b))]
		if nonZero(line) >= 0 || i+16 >= len(b) {
			fmt.Fprintf(&s, "%05x: % x\n", i, line)
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
