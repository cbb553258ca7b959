package mailbox

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
)

// Unposted is the receives that were pending at the checkpoint this run was restored from,
// without protection. nil is none, in a run that was not restored.
type Unposted []*unposted

// unposted is one of them. It is taken when the program has posted it again, or has
// received its message.
type unposted struct {
	endpoint.PendingReceive
	taken bool
}

// waits reports whether the receive has not been posted again, and no message waits for it.
func (o *unposted) waits() bool { return !o.taken && !o.Came }

// NewUnposted ties the messages of a record that has been read to the receives that had them,
// which the program has to post again.
func NewUnposted(r *Mail) (u Unposted) {
	for _, rec := range r.Receives {
		u = append(u, &unposted{PendingReceive: rec})
	}
	for i := range r.Boxes {
		if n := r.Boxes[i].Receive; n > 0 {
			r.Boxes[i].unposted = u[n-1]
		}
	}
	return u
}

// Receives returns those that the program has not posted again.
func (u Unposted) Receives() (out []endpoint.PendingReceive) {
	for _, o := range u {
		if !o.taken {
			out = append(out, o.PendingReceive)
		}
	}
	return out
}

// Waiting reports whether a receive without a message has not been posted again.
func (u Unposted) Waiting() bool { return slices.ContainsFunc(u, (*unposted).waits) }

// Posted notes that the program has posted a receive.
func (u Unposted) Posted(comm string, source, tag int) {
	for _, o := range u {
		if o.waits() && o.Comm == comm && o.Source == source && o.Tag == tag {
			o.taken = true
			return
		}
	}
}
