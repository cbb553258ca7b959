package imports

import (
	"fmt"
	"slices"
	"strings"
)

// module is the path of this module.
const module = "github.com/holdfast-hpc/holdfast"

// pkg is what the rules look at.
type pkg struct {
	Path        string
	Imports     []string // by its non-test files
	TestImports []string // by its test files inside the package
	OutsideTest []string // by those outside of it
}

// A rule says what the packages below a directory must not import.
type rule struct {
	below     string   // directory in the module; "a/b" covers a/b and what lies below
	forbidden []string // directories of the module, "a/." for the package a alone, or paths of the standard library
	deep      bool     // also through other packages of the module
	why       string
}

var rules = []rule{
	{"mpiwrap", []string{"gpustate", "storage", "coordinated", "slurm", "apps", "cmd"}, true,
		"mpiwrap stands alone: coordinated joins it to the others"},
	{"gpustate", []string{"mpiwrap", "storage", "coordinated", "slurm", "apps", "cmd"}, true,
		"gpustate stands alone: coordinated joins it to the others"},
	{"storage", []string{"mpiwrap", "gpustate", "coordinated", "slurm", "apps", "cmd"}, true,
		"storage stands alone: coordinated joins it to the others"},
	{"storage/internal/format", []string{"storage", "internal/vfs", "test/crashfs", "internal/config", "os",
		"io/fs", "net", "time"}, false, "the format is pure: bytes in, values out, and back"},
	{"internal/layout", []string{"mpiwrap", "gpustate", "storage", "coordinated", "cmd", "internal/vfs", "os", "io/fs",
		"net", "time"}, false, "layouts are pure: who has what, and no bytes"},
	{"storage/internal", []string{"storage/."}, true,
		"the root joins the rooms, which do not know it"},
	{"storage/s3", []string{"storage/."}, true,
		"programs that import it get what reaches buckets, and no more"},
	{"storage/parity", []string{"storage/.", "storage/s3"}, true,
		"programs that import it get what computes parity, and no more"},
	{"coordinated", []string{"storage/s3", "storage/parity", "storage/checkpoints"}, true,
		"programs import what they use of these"},
	{"storage/internal/shard",
		[]string{"storage/internal/level", "storage/internal/peer", "storage/internal/redundancy"}, true,
		"a shard knows neither levels nor other ranks"},
	{"storage/internal/redundancy", []string{"storage/internal/level"}, true,
		"it asks Places for what lies in directories"},
	{"storage/internal/level", []string{"storage/internal/catalog", "storage/internal/peer",
		"storage/internal/redundancy"}, true, "a level is one directory: it knows nothing of other ranks"},
	{"storage/internal/level", []string{"storage/internal/shard"}, true,
		"a level has files: fetch finds shards in them"},
	{"storage/internal/catalog", []string{"storage/internal/shard"}, true, "a catalogue reads no shard"},
	{"mpiwrap/internal", []string{"mpiwrap/."}, true,
		"the root joins the rooms, which do not know it"},
	{"mpiwrap/internal/devmsg", []string{"mpiwrap/internal/request", "mpiwrap/internal/mailbox"}, true,
		"it moves bytes for requests, and knows none"},
	{"mpiwrap/internal/mailbox", []string{"mpiwrap/internal/request", "mpiwrap/internal/devmsg"}, true,
		"it keeps messages for requests, and knows none"},
	{"gpustate/internal", []string{"gpustate/.", "gpustate/gpud"}, true,
		"drivers, and what devices and servers say to each other, know neither"},
	{"gpustate/internal/object", []string{"gpustate/internal/drivers", "gpustate/internal/remote",
		"gpustate/internal/wire", "net"}, false, "what is recorded of an object does not know where its device is"},
	{"gpustate/internal/checkpoint", []string{"gpustate/internal/remote", "gpustate/internal/wire", "net"}, false,
		"checkpoints are made of what a driver gives, wherever the device is"},
	{"gpustate/gpud/internal", []string{"gpustate/.", "gpustate/gpud/."}, true,
		"the root joins the rooms, which do not know it"},
	{"compat/mpi", []string{"gpustate", "storage", "coordinated", "slurm", "apps", "cmd"}, true,
		"it stands on mpiwrap alone"},
	{"compat/cl", []string{"gpustate/internal", "mpiwrap", "storage", "coordinated", "slurm", "apps", "cmd"}, false,
		"it stands on gpustate's face alone"},
	{"slurm", []string{"mpiwrap", "gpustate", "storage", "coordinated", "apps", "cmd"}, true,
		"slurm knows the batch system and nothing of checkpoints"},
	{"mpiwrap", []string{"compat"}, true, "the library does not depend on its users"},
	{"gpustate", []string{"compat"}, true, "the library does not depend on its users"},
	{"coordinated", []string{"apps", "cmd", "compat"}, true,
		"the library does not depend on its users"},
	{"coordinated/internal", []string{"coordinated/."}, true,
		"the root joins the rooms, which do not know it"},
	{"coordinated/internal/capture",
		[]string{"mpiwrap", "coordinated/control", "coordinated/cut", "coordinated/events",
			"coordinated/internal/arrays"},
		true, "a capture is one rank's: it knows nothing of the others"},
	{"coordinated/internal/arrays", []string{"mpiwrap", "coordinated/control", "coordinated/events",
		"coordinated/internal/agent", "coordinated/internal/persist"}, true,
		"arrays make and read what the ranks say, and speak to none"},
	{"coordinated/internal/vote", []string{"mpiwrap", "coordinated/control", "coordinated/events", "net", "os"}, false,
		"a vote is bytes in, a decision out"},
	{"coordinated/internal/connect", []string{"gpustate", "storage", "coordinated/events", "coordinated/internal/agent",
		"coordinated/internal/trigger", "coordinated/internal/watch"}, true,
		"it brings the ranks together, before there is anything to checkpoint"},
	{"coordinated/internal/outcome", []string{"mpiwrap", "gpustate", "storage", "coordinated/control",
		"coordinated/events", "coordinated/internal", "net", "os"}, true, "it is text in, an error out"},
	{"coordinated/internal/trigger",
		[]string{"mpiwrap", "gpustate", "coordinated/cut", "coordinated/events", "coordinated/internal"}, true,
		"what wants a checkpoint tells whoever holds it, and nobody else"},
	{"coordinated/internal/agent", []string{"gpustate", "storage", "net", "coordinated/internal/capture",
		"coordinated/internal/persist", "coordinated/internal/outside"}, false,
		"it speaks to the other ranks, and hands on what it hears"},
	{"coordinated/internal/outside",
		[]string{"mpiwrap", "gpustate", "coordinated/cut", "coordinated/events", "coordinated/internal"}, true,
		"it tells what it is told, and knows no other rank"},
	{"coordinated/internal/persist", []string{"mpiwrap", "coordinated/control", "coordinated/events"}, true,
		"what goes on in the background speaks to nobody"},
	{"internal/job", []string{"mpiwrap", "gpustate", "storage", "coordinated/.", "coordinated/cut",
		"coordinated/internal", "cmd"}, true,
		"jobs and the tool speak through it, and it knows neither"},
	{"cmd/holdfast/internal/epochs", []string{"gpustate/gpud", "internal/supervise", "cmd/holdfast/internal/jobs",
		"cmd/holdfast/internal/devices"}, true, "checkpoint directories are looked after without their job"},
	{"cmd/holdfast/internal/devices", []string{"storage/checkpoints", "internal/supervise",
		"cmd/holdfast/internal/epochs", "cmd/holdfast/internal/jobs"}, true, "servers of devices know no checkpoints"},
	{"internal/export", []string{"cmd", "internal/supervise", "gpustate/gpud"}, true,
		"it reads checkpoints, and knows neither verbs nor jobs"},
	{"internal/program", []string{"mpiwrap", "gpustate", "storage", "coordinated", "cmd"}, true,
		"it is the memory of a program, and knows no checkpoint"},
	{"internal/config", []string{"mpiwrap", "gpustate", "storage", "coordinated", "cmd"}, true,
		"whoever has a configuration says what its keys set"},
	{"coordinated/cut", []string{"mpiwrap", "gpustate", "storage", "net", "os", "os/signal"}, false,
		"the cut protocol is pure: events in, actions out"},
	{"internal/supervise/decide", []string{"cmd", "net", "os/exec", "os/signal"}, false,
		"what holdfast run decides is pure: events in, actions out"},
}

// violations returns one line for each import that breaks a rule, sorted.
func violations(packages []pkg) []string {
	byPath := map[string]pkg{}
	for _, p := range packages {
		byPath[p.Path] = p
	}
	var found []string
	for _, p := range packages {
		for _, r := range rules {
			if within(p.Path, r.below) {
				found = append(found, r.check(p, byPath)...)
			}
		}
		found = append(found, publicOnly(p)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// check returns the imports of p that r forbids. Tests may use all of the
// standard library, to read their files for example. Those outside of a package
// see it as whoever uses it does, and may bring all that it works with.
func (r rule) check(p pkg, byPath map[string]pkg) []string {
	reached := p.Imports
	if r.deep {
		reached = closure(p, byPath)
	}
	var found []string
	for _, f := range r.forbidden {
		for _, imported := range p.TestImports {
			if within(imported, f) {
				found = append(found, r.violation(p, imported))
			}
		}
		for _, imported := range reached {
			if within(imported, f) || imported == f {
				found = append(found, r.violation(p, imported))
			}
		}
	}
	return found
}

func (r rule) violation(p pkg, imported string) string {
	return fmt.Sprintf("%s imports %s: %s", p.Path, imported, r.why)
}

// closure returns the packages of the module that p's non-test files reach.
func closure(p pkg, byPath map[string]pkg) []string {
	seen := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		for _, imported := range byPath[path].Imports {
			if strings.HasPrefix(imported, module) && !seen[imported] {
				seen[imported] = true
				visit(imported)
			}
		}
	}
	visit(p.Path)
	paths := make([]string, 0, len(seen))
	for path := range seen {
		paths = append(paths, path)
	}
	return paths
}

// publicOnly reports internal packages that an application imports: the
// applications show what a user of the library can write.
func publicOnly(p pkg) []string {
	if !within(p.Path, "apps") {
		return nil
	}
	var found []string
	for _, imported := range slices.Concat(p.Imports, p.TestImports, p.OutsideTest) {
		inmodule := strings.HasPrefix(imported, module+"/")
		internal := slices.Contains(strings.Split(imported, "/"), "internal")
		if inmodule && internal && !within(imported, "apps") {
			found = append(found, fmt.Sprintf("%s imports %s: applications use only public packages",
				p.Path, imported))
		}
	}
	return found
}

// within reports whether path is the module's directory or lies below it.
func within(path, directory string) bool {
	directory, alone := strings.CutSuffix(directory, "/.")
	full := module + "/" + directory
	return path == full || !alone && strings.HasPrefix(path, full+"/")
}
