package scale

import (
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
)

// controlMessage is a control message under way.
type controlMessage struct {
	from  int32
	bytes int64
	msg   cut.Message
}

// step feeds a machine and does what it wants.
func (w *world) step(r *rank, ev cut.Event) {
	for _, a := range r.m.Step(ev) {
		switch a := a.(type) {
		case cut.Send:
			w.send(r, a)
		case cut.Arm:
			r.armed = true
		case cut.Disarm:
			r.armed = false
		case cut.Look:
			w.step(r, w.look(r))
		case cut.Release:
			w.releases++
			r.waiting = false
			w.at(w.now, evAdvance, r.id, 0)
		case cut.Cut:
			r.cut = a.Epoch
			w.cuts++
			w.cutAt = w.now
		}
	}
	if !r.ticking && r.m.Watching() {
		r.ticking = true
		w.at(w.now+w.tickEvery(), evTick, r.id, 0)
	}
}

// tickEvery is half a millisecond, as in package coordinated; for programs whose
// iterations are long it is a hundredth of one, to get done.
func (w *world) tickEvery() int64 { return max(int64(500*time.Microsecond), int64(w.iteration/100)) }

func (w *world) tick(r *rank) {
	r.ticking = false
	if !r.m.Watching() {
		return
	}
	if !r.waiting {
		w.step(r, w.look(r))
	}
	w.step(r, cut.Tick{Now: time.Duration(w.now)})
}

func (w *world) send(r *rank, s cut.Send) {
	p := controlMessage{from: r.id, bytes: int64(len(s.Msg.Append(nil))), msg: s.Msg}
	r.traffic.sent++
	r.traffic.sentBytes += p.bytes
	if s.Msg.Kind == cut.KindFreeze && r.id == 0 && int(s.Msg.Round) > w.rounds {
		w.rounds = int(s.Msg.Round)
	}
	n := int32(len(w.control))
	if k := len(w.unused); k > 0 {
		n, w.unused = w.unused[k-1], w.unused[:k-1]
		w.control[n] = p
	} else {
		w.control = append(w.control, p)
	}
	w.at(w.now+int64(w.opt.Hop), evControl, int32(s.To), n)
}

func (w *world) handle(r *rank, n int32) {
	p := w.control[n]
	w.control[n] = controlMessage{}
	w.unused = append(w.unused, n)
	r.traffic.received++
	r.traffic.receivedBytes += p.bytes
	w.step(r, cut.Received{From: int(p.from), Msg: p.msg, Sent: w.sentTo(r, p.msg.Rank)})
}

func (w *world) sentTo(r *rank, p int) uint64 {
	if l := r.links[int32(p)]; l != nil {
		return l.sent
	}
	return 0
}

func (w *world) colls(r *rank) []cut.Coll {
	out := make([]cut.Coll, len(r.comms))
	for i, c := range r.comms {
		out[i] = cut.Coll{Comm: c.name, Leader: c.members[0] == r.id, Size: len(c.members), Entered: r.counts[i]}
	}
	return out
}

func (w *world) arrived(r *rank) cut.Arrived {
	a := cut.Arrived{Points: r.points, Colls: w.colls(r)}
	if ps := r.m.Interest(); len(ps) > 0 {
		a.Sent = map[int]uint64{}
		for _, p := range ps {
			a.Sent[p] = w.sentTo(r, p)
		}
	}
	return a
}

func (w *world) look(r *rank) cut.Sampled {
	s := cut.Sampled{Now: time.Duration(w.now), Points: r.points, Colls: w.colls(r)}
	if !r.inOp || r.op.kind == opCompute || r.op.kind == opPoint {
		return s
	}
	s.Block = &cut.Block{Call: r.call}
	if r.op.kind == opRecv {
		s.Block.Waits = []cut.Wait{r.wait()}
	}
	return s
}

func (r *rank) wait() cut.Wait {
	if r.op.peer != cut.AnySource {
		return cut.Wait{Source: int(r.op.peer), Had: r.link(r.op.peer).received}
	}
	w := cut.Wait{Source: cut.AnySource, Comm: "world"}
	for _, l := range r.links {
		w.Had += l.received
	}
	return w
}
