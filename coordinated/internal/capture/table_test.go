package capture

import (
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestFormatExample decodes the table that docs/FORMAT.md shows.
func TestFormatExample(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```hexvars\n(.*?)```").FindSubmatch(doc)
	if block == nil {
		t.Fatal("no example in docs/FORMAT.md")
	}
	var digits strings.Builder
	for _, line := range strings.Split(string(block[1]), "\n") {
		bytes, _, _ := strings.Cut(line, "  ") // what it means stands behind
		digits.WriteString(strings.ReplaceAll(bytes, " ", ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	entries, err := decodeVars(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 || entries[0].name != "step" || entries[0].kind != "value int" || entries[0].inline[0] != 42 ||
		entries[1].name != "energy" || entries[1].size != 1<<20 || entries[1].inline != nil {
		t.Errorf("got %+v", entries)
	}
}
