package readme

import (
	"maps"
	"regexp"
	"strings"
	"testing"
)

// numbered are blocks of pages whose lines begin with the numbers and names of a source.
var numbered = []struct {
	page, row    string
	file, define string // name and number in the source
	from, to     string // its part
}{
	{"docs/internals/NODE.md", `(?m)^ ?(\d+) ([A-Z]+)\b`,
		"lib/src/protocol.h", `#define HFP_([A-Z]+) (\d+)`, "#define HFP_HELLO 1", "#define HFP_HELLO_GATHERS"},
	{"docs/internals/OPENCL.md", `(?m)^ ?(\d+) ([A-Z_]+)\b`,
		"lib/opencl/wire/protocol.h", `HFCL_([A-Z_]+) = (\d+)`, "HFCL_HELLO = 1", "};"},
}

// TestNumbers compares the numbers of messages in pages with the headers that have them.
func TestNumbers(t *testing.T) {
	for _, n := range numbered {
		page, source := map[string]string{}, map[string]string{}
		for _, m := range regexp.MustCompile(n.row).FindAllStringSubmatch(read(t, n.page), -1) {
			page[m[2]] = m[1]
		}
		_, part, _ := strings.Cut(read(t, n.file), n.from)
		part, _, _ = strings.Cut(n.from+part, n.to)
		for _, m := range regexp.MustCompile(n.define).FindAllStringSubmatch(part, -1) {
			source[m[1]] = m[2]
		}
		if len(source) < 20 || !maps.Equal(page, source) {
			t.Errorf("%s has %v, %s has %v", n.page, page, n.file, source)
		}
	}
}
