package coordinated

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// NotReceivedError says that a restarted program ended without posting receives again
// that were pending at the checkpoint and whose messages had arrived. It ran without
// them, so its results may be wrong.
type NotReceivedError struct {
	Rank     int
	Receives []mpiwrap.PendingReceive
}

// Error lists the messages that the restored program never received.
func (e *NotReceivedError) Error() string {
	s := fmt.Sprintf("coordinated: rank %d never received %d message(s) that the checkpoint holds for receives "+
		"pending at the cut: ", e.Rank, len(e.Receives))
	for i := range e.Receives {
		if i > 0 {
			s += "; "
		}
		s += e.Receives[i].String()
	}
	return s + "; results of this run may be wrong; post such receives again after Restore, or make them with " +
		"NewRequest and protect them"
}

// receivesLeft looks for receives that the program has not posted again. One whose
// message never came may have been given up by intention: that is a warning.
func (c *Checkpointer) receivesLeft() error {
	if !c.restored.Load() || c.stats.endedByStop() {
		return nil
	}
	var lost []mpiwrap.PendingReceive
	for _, p := range c.endpoint.UnpostedReceives() {
		if p.Came {
			lost = append(lost, p)
		} else {
			c.log.Warn("holdfast: the program has not posted a receive again that was pending at the checkpoint",
				"receive",
				p.String())
		}
	}
	if lost == nil {
		return nil
	}
	return &NotReceivedError{Rank: c.world.Rank(), Receives: lost}
}

// endedByStop says whether the newest epoch was the program's last.
func (t *statistics) endedByStop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.s.Epochs)
	return n > 0 && t.s.Epochs[n-1].Stopped
}
