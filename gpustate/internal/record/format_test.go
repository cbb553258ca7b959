package record

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// documented returns the record that docs/FORMAT.md shows.
func documented() *Record {
	return &Record{
		Device: driver.Info{Kind: "cuda", Name: "H200", Type: "gpu", Arch: "sm_90", GlobalBytes: 1 << 20, FP64: true},
		Objects: []Object{
			{ID: 1, Name: "x", Mem: &Mem{Kind: driver.MemBuffer, Bytes: 4096}},
			{ID: 2, Name: "p", Program: &Program{CUDA: "k", Options: "-DN=1"}},
			{ID: 3, Name: "k", Kernel: &Kernel{Program: 2, Function: "k", Args: []Arg{
				{Kind: driver.ArgMem, Object: 1}, {Kind: driver.ArgValue, Value: []byte{7, 0, 0, 0}}}}},
			{ID: 4, Name: "q", Queue: &Queue{Window: 20}},
		},
	}
}

// TestDocument decodes the example of docs/FORMAT.md.
func TestDocument(t *testing.T) {
	want := documented()
	want.Origin = 0x1234
	want.Objects = append(want.Objects, Object{ID: 5, Ordinal: 2, Mem: &Mem{Kind: driver.MemBuffer, Bytes: 8}})
	got := documentedBytes(t)
	r, err := Decode(got)
	if err != nil {
		t.Fatalf("%v; it should be\n%s", err, dump(want.Encode()))
	}
	if !reflect.DeepEqual(normal(r), normal(want)) || string(got) != string(want.Encode()) {
		t.Errorf("the example is another record; it should be\n%s", dump(want.Encode()))
	}
}

// documentedBytes returns the documented bytes of the example in docs/FORMAT.md.
func documentedBytes(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../../../docs/FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "<!-- gpu record example, version 3 -->")
	_, rest, ok2 := strings.Cut(rest, "```\n")
	body, _, ok3 := strings.Cut(rest, "```")
	if !ok || !ok2 || !ok3 {
		t.Fatal("the document has no example")
	}
	var digits strings.Builder
	for line := range strings.Lines(body) {
		bytes, _, _ := strings.Cut(line, "  ")
		digits.WriteString(strings.ReplaceAll(strings.TrimSpace(bytes), " ", ""))
	}
	got, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// dump writes lines of 16 bytes in groups of 4.
func dump(b []byte) string {
	var s strings.Builder
	for line := range slices.Chunk(b, 16) {
		for word := range slices.Chunk(line, 4) {
			fmt.Fprintf(&s, "%x ", word)
		}
		s.WriteByte('\n')
	}
	return s.String()
}

// TestVersion2 reads a record as version 0.2 wrote it before there were arrays of images: it differs in its number.
func TestVersion2(t *testing.T) {
	b := documentedBytes(t)
	b[len(magic)] = 2
	b = binary.LittleEndian.AppendUint32(b[:len(b)-4], crc32.Checksum(b[:len(b)-4], castagnoli))
	if sum := b[len(b)-4:]; hex.EncodeToString(sum) != "286da7f0" { // as the documentation of that version has it
		t.Fatalf("the example has the checksum %x", sum)
	}
	r, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Objects) != 5 || r.Origin != 0x1234 || r.Objects[4].Ordinal != 2 {
		t.Errorf("got %+v", r)
	}
}
