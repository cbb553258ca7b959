package coordinated

import (
	"fmt"
	"sync"
	"time"
)

// inVain counts, at rank 0, the checkpoints in a row that failed or were given up. One that comes to the last level
// ends the row.
type inVain struct {
	mu  sync.Mutex
	row int
}

// sayFailing is the length of a row at which the log says so in one line; then at twice that, and so on.
const sayFailing = 3

// fails counts a checkpoint that failed, or was given up.
func (c *Checkpointer) fails(err error) {
	f := &c.inVain
	f.mu.Lock()
	f.row++
	row := f.row
	f.mu.Unlock()
	if times := row / sayFailing; c.topo.Rank != 0 || row%sayFailing != 0 || times&(times-1) != 0 {
		return
	}
	c.log.Error("holdfast: NO CHECKPOINT: "+c.failingText()+". The job goes on. Look at the directories with "+
		"'holdfast doctor', or at its points with 'holdfast status'", "error", err)
}

// succeeds ends a row: a checkpoint is at the last level.
func (c *Checkpointer) succeeds() {
	f := &c.inVain
	f.mu.Lock()
	row := f.row
	f.row = 0
	f.mu.Unlock()
	if row >= sayFailing && c.topo.Rank == 0 {
		c.log.Warn("holdfast: checkpoints succeed again", "failed_before", row)
	}
}

// failingText says how many have failed in a row and what a death would cost now; empty below sayFailing.
func (c *Checkpointer) failingText() string {
	c.inVain.mu.Lock()
	row := c.inVain.row
	c.inVain.mu.Unlock()
	if row < sayFailing {
		return ""
	}
	all, from := c.Stats(), "its start"
	loss := c.nodeLoss(&all, time.Now())
	if loss.Epoch != 0 {
		from = fmt.Sprintf("epoch %d", loss.Epoch)
	}
	return fmt.Sprintf("the last %d failed; if a node is lost now, the job goes back to %s and loses %v", row, from,
		time.Duration(loss.Seconds*float64(time.Second)).Round(time.Second))
}
