package coordinated

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// modulePath is what the library's own stack frames begin with.
const modulePath = "github.com/holdfast-hpc/holdfast/"

// whereabouts says what this rank's main thread is doing, for the one who has
// to find out why a checkpoint did not come about.
func (a *agent) whereabouts() string {
	act := a.c.endpoint.Activity()
	where := callSite()
	if !act.Blocked {
		what := "computing"
		if len(a.polls.waits) > 0 {
			what = "polling"
		}
		return fmt.Sprintf("%s, %d Points passed%s", what, a.c.points.load(), where)
	}
	since := ""
	if act.Seq == a.callSeq {
		since = fmt.Sprintf(" for at least %v", time.Since(a.callSince).Round(time.Millisecond))
	}
	return fmt.Sprintf("in %s on communicator %s%s%s%s", act.Op, act.Comm, describe(act.Waits), since, where)
}

func describe(ws []mpiwrap.Wait) string {
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

// callSite finds the program's own file and line among the goroutines: in the
// one that is inside mpiwrap, otherwise in the first.
func callSite() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	stacks := bytes.Split(buf, []byte("\n\n"))
	for _, s := range stacks {
		if bytes.Contains(s, []byte(modulePath+"mpiwrap.")) {
			return programFrame(string(s))
		}
	}
	for _, s := range stacks {
		if bytes.Contains(s, []byte("\nmain.main(")) {
			return programFrame(string(s))
		}
	}
	return ""
}

// programFrame returns the innermost frame that is neither the runtime's nor
// the library's: frames are a line with the function and one with the place.
func programFrame(stack string) string {
	lines := strings.Split(stack, "\n")
	for i := 1; i+1 < len(lines); i += 2 {
		f := lines[i]
		if ours(f) || !strings.HasPrefix(lines[i+1], "\t") {
			continue
		}
		place, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " +0x")
		return " at " + place
	}
	return ""
}

func ours(frame string) bool {
	for _, p := range []string{"runtime.", "syscall.", "internal/", modulePath + "mpiwrap", modulePath + "gpustate", modulePath + "coordinated.", "_cgo", "sync.", "os."} {
		if strings.HasPrefix(frame, p) {
			return true
		}
	}
	return false
}
