package driver

import (
	"reflect"
	"testing"
)

// TestUnits: a linked text holds its units, also behind what a server puts before it.
func TestUnits(t *testing.T) {
	want := []Unit{{"int f(int);\n", "-DA=1 -w"}, {"int f(int x) { return x; }\n", ""}, {"\n\n", "-g"}}
	text, err := JoinUnits(want)
	if err != nil {
		t.Fatal(err)
	}
	if got := SplitUnits(text); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for i, u := range SplitUnits("#define asm none\n" + text) {
		if u.Source != "#define asm none\n"+want[i].Source || u.Options != want[i].Options {
			t.Errorf("unit %d: got %q", i, u)
		}
	}
	if got := SplitUnits("kernel void k() {}"); got != nil {
		t.Errorf("one source: got %q", got)
	}
	for _, source := range []string{unitMark + "-x", "a;\n" + unitMark, "a;\n" + linkedMark} {
		if _, err := JoinUnits([]Unit{{Source: source}}); err == nil {
			t.Errorf("%q was joined", source)
		}
	}
}
