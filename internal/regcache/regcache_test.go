package regcache

import (
	"slices"
	"testing"
)

func TestMake(t *testing.T) {
	for _, c := range []struct {
		name    string
		env     map[string]string
		release string
		kdreg2  bool
		pages   bool
		want    map[string]string // variables to set
		unsafe  string            // the user's variable that is warned of
	}{
		{"nothing set", nil, "6.1.0-18-amd64", false, false, map[string]string{
			"UCX_MEM_EVENTS": "n", "FI_MR_CACHE_MONITOR": "disabled", "OMPI_MCA_mpi_leave_pinned": "0",
			"MV2_USE_LAZY_MEM_UNREGISTER": "0"}, ""},
		{"a kernel monitor", nil, "5.14.21-150400", true, false, map[string]string{
			"UCX_MEM_EVENTS": "n", "FI_MR_CACHE_MONITOR": "kdreg2", "OMPI_MCA_mpi_leave_pinned": "0",
			"MV2_USE_LAZY_MEM_UNREGISTER": "0"}, ""},
		{"the user has decided", map[string]string{"UCX_RCACHE_ENABLE": "y", "FI_MR_CACHE_MONITOR": "userfaultfd"},
			"6.1", false, false,
			map[string]string{"OMPI_MCA_mpi_leave_pinned": "0", "MV2_USE_LAZY_MEM_UNREGISTER": "0"},
			"UCX_RCACHE_ENABLE"},
		{"one of two is off", map[string]string{"UCX_MEM_EVENTS": "y", "UCX_IB_REG_METHODS": "direct",
			"FI_MR_CACHE_MONITOR":        "memhooks",
			"OMPI_MCA_opal_leave_pinned": "0", "MV2_USE_LAZY_MEM_UNREGISTER": "0"}, "6.1", false, false, nil,
			"FI_MR_CACHE_MONITOR"},
		{"lazy pages", map[string]string{"GODEBUG": "gctrace=1,madvdontneed=0"}, "5.18.0", false, true, nil, ""},
		{"lazy pages, taken back", map[string]string{"GODEBUG": "madvdontneed=0,madvdontneed=1"}, "6.1", true, false,
			map[string]string{
				"UCX_MEM_EVENTS": "n", "FI_MR_CACHE_MONITOR": "kdreg2", "OMPI_MCA_mpi_leave_pinned": "0",
				"MV2_USE_LAZY_MEM_UNREGISTER": "0"}, ""},
		{"lazy pages, old kernel", map[string]string{"GODEBUG": "madvdontneed=0"}, "4.18.0-477.el8", false, false,
			map[string]string{
				"UCX_MEM_EVENTS": "n", "FI_MR_CACHE_MONITOR": "disabled", "OMPI_MCA_mpi_leave_pinned": "0",
				"MV2_USE_LAZY_MEM_UNREGISTER": "0"}, ""},
		{"lazy pages, unknown kernel", map[string]string{"GODEBUG": "madvdontneed=0", "UCX_MEM_EVENTS": "n",
			"OMPI_MCA_opal_leave_pinned": "1"}, "", false, false,
			map[string]string{"FI_MR_CACHE_MONITOR": "disabled", "MV2_USE_LAZY_MEM_UNREGISTER": "0"},
			"OMPI_MCA_opal_leave_pinned"},
	} {
		p := makePlan(System{Lookup: func(n string) (string, bool) {
			v, ok := c.env[n]
			return v, ok
		}, Release: c.release, Kdreg2: c.kdreg2})
		if p.Pages != c.pages {
			t.Errorf("%s: Pages is %v, want %v", c.name, p.Pages, c.pages)
		}
		got := map[string]string{}
		for _, s := range p.Settings {
			if !s.ByUser {
				got[s.Name] = s.Value
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: sets %v, want %v", c.name, got, c.want)
		}
		warned := ""
		for _, s := range p.Unsafe() {
			warned += s.Name
		}
		if warned != c.unsafe {
			t.Errorf("%s: warns of %q, want %q", c.name, warned, c.unsafe)
		}
		for n, v := range c.want {
			if got[n] != v {
				t.Errorf("%s: %s is %q, want %q", c.name, n, got[n], v)
			}
		}
	}
}

func TestForPrograms(t *testing.T) {
	for _, c := range []struct{ env, want []string }{
		{nil, []string{"GODEBUG=madvdontneed=0"}},
		{[]string{"A=b", "GODEBUG=gctrace=1"}, []string{"A=b", "GODEBUG=gctrace=1",
			"GODEBUG=gctrace=1,madvdontneed=0"}},
		{[]string{"GODEBUG=madvdontneed=1"}, []string{"GODEBUG=madvdontneed=1"}},
	} {
		if got := ForPrograms(c.env); !slices.Equal(got, c.want) {
			t.Errorf("ForPrograms(%q) = %q, want %q", c.env, got, c.want)
		}
	}
}
