package watch

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// modulePath begins the library's own stack frames.
const modulePath = "github.com/holdfast-hpc/holdfast/"

// CallSite finds the program's own file and line among the goroutines: in the one that is inside mpiwrap or this
// package, otherwise in the first. It begins with " at ", and is empty if there is none.
func CallSite() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	stacks := bytes.Split(buf, []byte("\n\n"))
	for _, inside := range []string{modulePath + "mpiwrap.", modulePath + "coordinated.(*Checkpointer)."} {
		for _, s := range stacks {
			if bytes.Contains(s, []byte(inside)) {
				if at := programFrame(string(s)); at != "" {
					return at
				}
			}
		}
	}
	for _, s := range stacks {
		if bytes.Contains(s, []byte("\nmain.main(")) {
			return programFrame(string(s))
		}
	}
	return ""
}

// programFrame returns the innermost frame of a stack that is the program's own: frames are a line with the function
// and one with the place. The lines after "created by" are the goroutine's origin, not its place.
func programFrame(stack string) string {
	lines := strings.Split(stack, "\n")
	for i := 1; i+1 < len(lines); i += 2 {
		if strings.HasPrefix(lines[i], "created by ") {
			break
		}
		if !strings.HasPrefix(lines[i+1], "\t") || !programs(lines[i]) {
			continue
		}
		place, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " +0x")
		return " at " + place
	}
	return ""
}

// Here returns the program's file and line from which this package was called, as
// CallSite has it.
func Here() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if programs(f.Function) {
			return " at " + f.File + ":" + strconv.Itoa(f.Line)
		}
		if !more {
			return ""
		}
	}
}

// programs reports whether a function belongs to the program: neither to Holdfast nor
// to Go's own library.
func programs(function string) bool {
	for _, p := range []string{"mpiwrap", "gpustate", "coordinated", "storage", "compat", "internal"} {
		rest, ours := strings.CutPrefix(function, modulePath+p)
		if ours && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "/")) {
			return false
		}
	}
	path := function // of the package: up to the first dot behind the last slash
	slash := strings.LastIndexByte(path, '/') + 1
	if dot := strings.IndexByte(path[slash:], '.'); dot >= 0 {
		path = path[:slash+dot]
	}
	first, _, _ := strings.Cut(path, "/")
	if path == "main" || strings.Contains(first, ".") {
		return true // paths with a dot in front are modules; Go's library has no dot
	}
	m := module()
	return m != "" && (path == m || strings.HasPrefix(path, m+"/"))
}

// module is the program's own, whose path may have no dot.
var module = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Path
	}
	return ""
})

// InCall names the call that a main thread is blocked in.
func InCall(act endpoint.Activity) string {
	on := ""
	if act.Comm != "" {
		on = " on communicator " + act.Comm
	}
	return "in " + act.Op + on + Describe(act.Waits)
}

// Describe lists the messages that a call waits for; each begins with a space.
func Describe(ws []endpoint.Wait) string {
	var b strings.Builder
	for i, w := range ws {
		const most = 4
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(ws)-most)
			break
		}
		peer, word := fmt.Sprint(w.Source), "from"
		if w.Source == mpiwrap.AnySource {
			peer = "any"
		}
		if w.Send {
			peer, word = fmt.Sprint(w.Peer), "to"
		}
		tag := fmt.Sprint(w.Tag)
		if w.Tag == mpiwrap.AnyTag {
			tag = "any"
		}
		fmt.Fprintf(&b, " %s rank %s tag %s", word, peer, tag)
	}
	return b.String()
}
