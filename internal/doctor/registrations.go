package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/regcache"
)

// lookRegistrations says how Go programs are kept from sending stale pages.
func lookRegistrations(_ context.Context, r *report) { r.judgeRegistrations(regcache.Here()) }

func (r *report) judgeRegistrations(p regcache.Plan) {
	const area, remedy = "network cards", "export GODEBUG=madvdontneed=0 before the job (Linux 5.18 or newer)"
	if p.Pages {
		r.add(area, "registered memory", OK, "caches of registered memory stay on: the Go runtime gives pages back "+
			"lazily (GODEBUG=madvdontneed=0)", "")
		return
	}
	var ours []string
	for _, s := range p.Settings {
		set := s.Name + "=" + s.Value
		switch {
		case s.Unsafe:
			r.add(area, s.Library, Warning, set+" keeps a cache of registered memory that does not see the Go "+
				"runtime: it can send stale data",
				"unset "+s.Name+", or "+remedy)
		case s.ByUser:
			r.add(area, s.Library, OK, set+" is safe with Go memory", "")
		default:
			ours = append(ours, set)
		}
	}
	if len(ours) > 0 {
		r.add(area, "registered memory", OK,
			fmt.Sprintf("programs set %s. Large messages on InfiniBand and the like are faster with "+
				"GODEBUG=madvdontneed=0, which 'holdfast run' sets",
				strings.Join(ours, ", ")), "")
	}
}
