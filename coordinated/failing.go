package coordinated

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/storage"
)

// inVain counts, at rank 0, the checkpoints in a row that failed or were given up. One that comes to the last level
// ends the row.
type inVain struct {
	mu  sync.Mutex
	row int
	err error // of the newest
}

// sayFailing is the length of a row at which the log says so in one line; then at twice that, and so on.
const sayFailing = 3

// fails counts a checkpoint that failed, or was given up.
func (c *Checkpointer) fails(err error) {
	f := &c.inVain
	f.mu.Lock()
	f.row++
	f.err = err
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
	f.row, f.err = 0, nil
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
	all := c.Stats()
	lost, from := time.Since(c.begun), "its start"
	if r := all.Restore; r.Epoch != 0 {
		from = fmt.Sprintf("epoch %d, which this start restored", r.Epoch)
	}
	survives := func(level string) bool { return storage.TraitsOf(level).SurvivesNode() }
	any := !slices.ContainsFunc(c.levels.use, survives)
	for _, es := range all.Epochs {
		for level := range es.Durable {
			if any || survives(level) {
				lost, from = time.Since(es.cut), fmt.Sprintf("epoch %d", es.Epoch)
			}
		}
	}
	return fmt.Sprintf("the last %d failed; if a node is lost now, the job goes back to %s and loses %v", row, from,
		lost.Round(time.Second))
}
