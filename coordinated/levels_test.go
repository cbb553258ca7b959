package coordinated

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

func TestPlaceLevels(t *testing.T) {
	empty, old := crashfs.New(), crashfs.New()
	for _, f := range []*crashfs.FS{empty, old} {
		f.MkdirAll("/l")
	}
	old.MkdirAll("/l/partner")
	for _, c := range []struct {
		redundancy, nodes string
		files             *crashfs.FS
		use, open, say    string
	}{
		{"parity:2+1", "a b c", empty, "local parity global", "local parity global", ""},
		{"parity:2+1", "a b c", old, "local parity global", "local parity partner global", ""},
		{"parity:2+1", "a a b", empty, "local partner global", "local parity partner global", "1 copies"},
		{"parity:4+2", "a b", empty, "local partner global", "local parity partner global", "1 copies"},
		{"parity:1+2", "a a b c", empty, "local partner global", "local parity partner global", "2 copies"},
		{"parity:2+1", "a a a", empty, "local global", "local parity global", "no epoch will be at parity"},
		{"partner:2", "a b a", empty, "local global", "local partner global", "no epoch will be at partner"},
		{"", "a", empty, "local global", "local global", ""},
	} {
		t.Run(c.redundancy+" on "+c.nodes, func(t *testing.T) {
			o := Options{Local: "/l", Global: "/g", Keep: 3, Redundancy: c.redundancy}
			levels, err := o.levelConfigs()
			if err != nil {
				t.Fatal(err)
			}
			p := placeLevels(levels, strings.Fields(c.nodes), c.files)
			var open []string
			for _, l := range p.open {
				open = append(open, l.Name)
				if l.Name == storage.LevelPartner && (l.Dir != "/l/partner" || l.Keep != 3) {
					t.Errorf("copies are kept as %+v", l)
				}
			}
			if got := strings.Join(p.use, " "); got != c.use {
				t.Errorf("got levels %s in use, want %s", got, c.use)
			}
			if got := strings.Join(open, " "); got != c.open {
				t.Errorf("got levels %s open, want %s", got, c.open)
			}
			if (p.say == "") != (c.say == "") || !strings.Contains(p.say, c.say) || (p.why == nil) != (c.say == "") {
				t.Errorf("it says %q, %v, want %q", p.say, p.why, c.say)
			}
			for _, l := range p.open {
				if err := l.Fits(strings.Fields(c.nodes)); err != nil && strings.Contains(fmt.Sprint(p.use), l.Name) {
					t.Errorf("%s is in use: %v", l.Name, err)
				}
			}
		})
	}
}
