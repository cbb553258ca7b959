// Package regcache keeps network libraries from sending stale pages of Go memory.
//
// # The hazard
//
// InfiniBand, Slingshot and similar networks send from pages that were registered
// with the network card beforehand. Registering is slow, so UCX, libfabric and
// Open MPI keep a cache: the same address is registered once. They drop an entry
// when libc's munmap or madvise gives the pages back, which they see because they
// patch these functions. The Go runtime gives pages of its heap back with a system
// call of its own, which they do not see. When the address is used again it has new
// pages, the cache still names the old ones, and the card sends or fills those:
// wrong data, and no error.
//
// # Safety
//
// Either the cache is off, or watches the kernel instead of libc; or the runtime
// gives pages back with MADV_FREE (GODEBUG=madvdontneed=0) on a kernel that keeps
// pages which a device has pinned, Linux 5.18 and later. Plan chooses.
package regcache

import (
	"fmt"
	"slices"
	"strings"
)

// A Setting is a variable of the environment for one network library.
type Setting struct {
	Library string // "UCX", "libfabric", "Open MPI", "MVAPICH2"
	Name    string
	Value   string
	ByUser  bool // found in the environment, and left alone
	Unsafe  bool // the user's value keeps a cache that cannot see the Go runtime
}

// A Plan says how a process is kept from sending stale pages.
type Plan struct {
	// Pages is true where the runtime itself is safe: caches may stay on.
	Pages bool
	// Settings has one entry for each library; those not ByUser are to be set
	// before the MPI library is loaded. Empty when Pages.
	Settings []Setting
}

// A System has the facts that a plan depends on.
type System struct {
	Lookup  func(string) (string, bool) // of the environment
	Release string                      // of the kernel, from uname(2)
	Kdreg2  bool                        // HPE's kernel monitor is there
}

// library is a network library with a registration cache.
type library struct {
	name    string
	set     Setting // if the user has set nothing
	decides []decision
}

// decision is a variable by which a user decides about the cache.
type decision struct {
	variable string
	safe     func(value string) bool
}

// off reports whether a switch has been put off.
func off(value string) bool {
	return slices.Contains([]string{"0", "n", "no", "off", "false"}, strings.ToLower(value))
}

func seesKernel(monitor string) bool {
	return slices.Contains([]string{"disabled", "userfaultfd", "uffd", "kdreg2"}, strings.ToLower(monitor))
}

func withoutCache(methods string) bool { return !strings.Contains(methods, "rcache") }

func libraries(s System) []library {
	monitor := "disabled"
	if s.Kdreg2 {
		monitor = "kdreg2"
	}
	return []library{
		// Without memory events UCX has no registration cache, in all versions.
		{"UCX", Setting{Name: "UCX_MEM_EVENTS", Value: "n"}, []decision{
			{"UCX_MEM_EVENTS", off}, {"UCX_RCACHE_ENABLE", off}, {"UCX_IB_REG_METHODS", withoutCache}}},
		{"libfabric", Setting{Name: "FI_MR_CACHE_MONITOR", Value: monitor}, []decision{
			{"FI_MR_CACHE_MONITOR", seesKernel}, {"FI_MR_CACHE_MAX_COUNT", off}}},
		{"Open MPI", Setting{Name: "OMPI_MCA_mpi_leave_pinned", Value: "0"}, []decision{
			{"OMPI_MCA_mpi_leave_pinned", off}, {"OMPI_MCA_opal_leave_pinned", off}}},
		{"MVAPICH2", Setting{Name: "MV2_USE_LAZY_MEM_UNREGISTER", Value: "0"}, []decision{
			{"MV2_USE_LAZY_MEM_UNREGISTER", off}}},
	}
}

// makePlan returns the plan for a process. Variables that the user has set are not changed.
func makePlan(s System) Plan {
	if freesLazily(s) && keepsPinned(s.Release) {
		return Plan{Pages: true}
	}
	var p Plan
	for _, l := range libraries(s) {
		p.Settings = append(p.Settings, l.setting(s.Lookup))
	}
	return p
}

// setting returns the user's setting, the safest first, or else Holdfast's.
func (l library) setting(lookup func(string) (string, bool)) Setting {
	set := l.set
	for _, d := range l.decides {
		v, ok := lookup(d.variable)
		if ok && (!set.ByUser || set.Unsafe) {
			set = Setting{Name: d.variable, Value: v, ByUser: true, Unsafe: !d.safe(v)}
		}
	}
	set.Library = l.name
	return set
}

// Unsafe returns the user's settings that keep a cache which cannot see the Go runtime.
func (p Plan) Unsafe() []Setting {
	return slices.DeleteFunc(slices.Clone(p.Settings), func(s Setting) bool { return !s.Unsafe })
}

// freesLazily reports whether the runtime uses MADV_FREE. The last mention counts.
func freesLazily(s System) bool {
	v, _ := s.Lookup("GODEBUG")
	lazily := false
	for _, f := range strings.Split(v, ",") {
		if name, value, ok := strings.Cut(f, "="); ok && name == "madvdontneed" {
			lazily = value == "0"
		}
	}
	return lazily
}

// keepsPinned reports whether the kernel keeps a page given back with MADV_FREE while
// a device has it pinned. Linux does since 5.18.
func keepsPinned(release string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > 5 || major == 5 && minor >= 18
}
