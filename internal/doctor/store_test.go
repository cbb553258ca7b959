package doctor

import (
	"strings"
	"testing"

	_ "github.com/holdfast-hpc/holdfast/storage/s3"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

// TestStore: an object store is measured, and one that cannot be a level is named with the remedy.
func TestStore(t *testing.T) {
	for name, c := range map[string]struct {
		store *fakes3.Server
		state State
		text  string
	}{
		"good":          {&fakes3.Server{}, OK, "GB/s written"},
		"no conditions": {&fakes3.Server{IgnoreConditions: true}, Failed, "conditional puts"},
		"forbidden":     {&fakes3.Server{Deny: true}, Failed, "policy of the bucket"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &report{Options: Options{Local: t.TempDir(), Global: fakes3.Start(t, c.store)}}
			lookDirectories(t.Context(), r)
			found := false
			for _, f := range r.findings {
				found = found || f.Check == "global" && f.State == c.state && strings.Contains(f.Detail, c.text)
			}
			if !found {
				t.Errorf("got %+v, want %s with %q", r.findings, c.state, c.text)
			}
			if keys := c.store.Keys(); len(keys) > 0 {
				t.Errorf("%v is left", keys)
			}
		})
	}
}
