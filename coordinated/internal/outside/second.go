package outside

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

// lingering is how long the ranks of a run that is about to end may still answer.
const lingering = 5 * time.Second

// RefuseSecond looks for a run that answers, and goes on answering: survivors of
// a dead rank take a moment to leave. A contact file that a dead run left behind
// is no obstacle.
func RefuseSecond(ctx context.Context, dir string) error {
	pause := sleep.Backoff{First: lingering / 1000, Longest: lingering / 10}
	for end := time.Now().Add(lingering); ; {
		err := Answering(ctx, dir)
		if err == nil || time.Now().After(end) || sleep.For(ctx, pause.Next()) != nil {
			return err
		}
	}
}

// Answering returns an error when the run that published the contact file is alive: the two
// would overwrite each other's epochs.
func Answering(ctx context.Context, dir string) error {
	k, err := job.ReadContact(dir)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := control.DialClient(ctx, k.Addr, 0, k.Key)
	if err != nil {
		return nil // it is gone, or the port is somebody else's by now
	}
	_ = conn.Close() // it has answered the proof, which is all there was to ask
	return fmt.Errorf("another run of this job uses %s: its rank 0 is process %d on node %s; end that run first, or "+
		"use another directory", dir, k.PID, k.Node)
}
