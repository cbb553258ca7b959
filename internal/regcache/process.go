package regcache

import (
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Here returns the plan for this process. Variables that the process itself set
// with Apply count as the user's from then on.
func Here() Plan {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		u = unix.Utsname{} // an unknown kernel: the caches go off
	}
	_, err := os.Stat("/dev/kdreg2")
	return makePlan(System{Lookup: os.LookupEnv, Release: unix.ByteSliceToString(u.Release[:]), Kdreg2: err == nil})
}

// Apply sets the plan's variables, for the libraries that the process loads later.
func (p Plan) Apply() error {
	var errs []error
	for _, s := range p.Settings {
		if !s.ByUser {
			errs = append(errs, os.Setenv(s.Name, s.Value))
		}
	}
	return errors.Join(errs...)
}

// lazily makes a Go program give pages back with MADV_FREE.
const lazily = "madvdontneed=0"

// ForPrograms returns an environment in which Go programs keep their caches and are
// safe: GODEBUG with madvdontneed=0, unless env says something about it already.
func ForPrograms(env []string) []string {
	old := ""
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "GODEBUG="); ok {
			old = value
		}
	}
	switch {
	case strings.Contains(old, "madvdontneed"):
		return env
	case old != "":
		old += ","
	}
	return append(slices.Clone(env), "GODEBUG="+old+lazily)
}
