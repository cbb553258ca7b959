package coordinated

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

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
	return inCall(act) + since + where
}

// inCall names the call that a main thread is blocked in.
func inCall(act endpoint.Activity) string {
	return fmt.Sprintf("in %s on communicator %s%s", act.Op, act.Comm, describe(act.Waits))
}

func describe(ws []endpoint.Wait) string {
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
