package coordinated

import "github.com/holdfast-hpc/holdfast/internal/regcache"

// warnOfRegistrations names settings under which a network card may send stale pages
// of Go memory.
func (c *Checkpointer) warnOfRegistrations(p regcache.Plan) {
	for _, s := range p.Unsafe() {
		c.log.Warn("holdfast: a cache of registered memory does not see the Go runtime: messages may be wrong; "+
			"unset the variable, or start the program with GODEBUG=madvdontneed=0 on Linux 5.18 or newer",
			"library", s.Library, "variable", s.Name, "value", s.Value)
	}
}
