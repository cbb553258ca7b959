package doctor

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/regcache"
)

func TestRegistrations(t *testing.T) {
	for _, c := range []struct {
		name, check string
		plan        regcache.Plan
		want        State
	}{
		{"lazy pages", "registered memory", regcache.Plan{Pages: true}, OK},
		{"ours", "registered memory",
			regcache.Plan{Settings: []regcache.Setting{{Library: "UCX", Name: "UCX_MEM_EVENTS", Value: "n"}}}, OK},
		{"the user's", "UCX",
			regcache.Plan{Settings: []regcache.Setting{{Library: "UCX", Name: "UCX_RCACHE_ENABLE", Value: "n",
				ByUser: true}}}, OK},
		{"the user's, unsafe", "UCX",
			regcache.Plan{Settings: []regcache.Setting{{Library: "UCX", Name: "UCX_MEM_EVENTS", Value: "y",
				ByUser: true, Unsafe: true}}}, Warning},
	} {
		r := &report{}
		r.judgeRegistrations(c.plan)
		f := states(r)[c.check]
		if f.State != c.want || f.State == Warning && f.Remedy == "" {
			t.Errorf("%s: got %+v, want %s", c.name, f, c.want)
		}
	}
}
