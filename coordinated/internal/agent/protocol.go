package agent

import (
	"errors"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
)

func (a *Agent) receive(in control.Inbound) {
	msg, err := cut.Decode(in.Payload)
	if err != nil {
		a.Log.Error("holdfast: malformed control message ignored", "from", in.From, "error", err)
		return
	}
	switch msg.Kind {
	case cut.KindGather:
		a.collect(in.From, msg)
	case cut.KindPublish:
		a.publish(msg)
	case cut.KindLost:
		if msg.Rank >= 0 && msg.Rank < a.Topology.Size() {
			a.leave(in.From, msg)
		}
	case cut.KindWaiting:
		a.sayWaiting()
	case cut.KindStatus:
		a.answerStatus(msg)
	default:
		a.step(cut.Received{From: in.From, Msg: msg, Sent: a.sentTo(msg.Rank)})
	}
}

func (a *Agent) sentTo(rank int) uint64 {
	if rank < 0 || rank >= a.Topology.Size() {
		return 0
	}
	return a.Endpoint.Sent(rank)
}

// step passes an event to the machine and carries out its actions.
func (a *Agent) step(ev cut.Event) {
	for _, act := range a.machine.Step(ev) {
		a.act(act)
	}
	a.tryEnd()
}

func (a *Agent) act(act cut.Action) {
	switch act := act.(type) {
	case cut.Send:
		a.send(act.To, act.Msg)
	case cut.Arm:
		a.armed, a.releases = time.Now(), 0
		a.polls = watch.Polling{}
		a.Events.Emit(events.Event{Name: events.Arm, Epoch: uint64(act.Epoch), Points: a.Thread.Points.Load()})
		a.Phase("armed")
		a.Arm(true)
	case cut.Disarm:
		a.Arm(false)
	case cut.Look:
		a.step(a.sample())
	case cut.Release:
		a.releases++
		a.verdicts <- Verdict{Epoch: a.machine.Epoch(), Logged: a.releases <= MostReleases}
	case cut.Cut:
		a.Phase("cut")
		a.Triggers.Cut(act.Stop)
		a.Cut(act.Epoch, Agreement{time.Since(a.armed), int(a.machine.Round()), a.releases})
		a.verdicts <- Verdict{Cut: true, Epoch: act.Epoch, Stop: act.Stop}
	case cut.GaveUp:
		a.gaveUp(act)
	}
}

// send delivers a message, to this rank itself through the machine.
func (a *Agent) send(to int, msg cut.Message) {
	if to == a.Topology.Rank {
		a.step(cut.Received{From: to, Msg: msg, Sent: a.sentTo(msg.Rank)})
		return
	}
	err := a.Plane.Send(to, msg.Append(nil))
	switch {
	case err == nil || errors.Is(err, control.ErrClosed):
	case a.left: // the job is over, and ranks go
		a.Log.Debug("holdfast: cannot tell a rank", "to", to, "kind", msg.Kind.String(), "error", err)
	default:
		a.Log.Warn("holdfast: cannot tell a rank", "to", to, "kind", msg.Kind.String(), "error", err)
	}
}

// arrive runs for the main thread when it reaches a Point. The epoch may be over by then; the machine releases it in
// that case.
func (a *Agent) arrive() {
	sent := map[int]uint64{}
	for _, r := range a.machine.Interest() {
		sent[r] = a.sentTo(r)
	}
	if a.releases < MostReleases {
		a.Events.Emit(events.Event{Name: events.Park, Begin: true, Epoch: uint64(a.machine.Epoch()),
			Points: a.Thread.Points.Load()})
	}
	a.step(cut.Arrived{Points: a.Thread.Points.Load(), Colls: a.colls(), Sent: sent})
}

func (a *Agent) colls() []cut.Coll {
	counts := a.Endpoint.Collectives()
	out := make([]cut.Coll, len(counts))
	for i, n := range counts {
		out[i] = cut.Coll{Comm: n.Comm, Leader: n.Leader == a.Topology.Rank, Size: n.Size, Entered: n.Entered}
	}
	return out
}
