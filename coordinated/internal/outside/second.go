package outside

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

// lingering is how long the ranks of a run that is about to end may still answer.
const lingering = 5 * time.Second

// OtherRunError reports a run that uses the job's directory now: the two would overwrite each other's epochs. No node
// is to blame for it.
type OtherRunError struct {
	Dir  string
	Node string // of its rank 0
	PID  int

	supervisor string
}

// Error names the directory, and the process to look for.
func (e *OtherRunError) Error() string {
	return fmt.Sprintf("another run of this job uses %s: its rank 0 is process %d on node %s; end that run first, or "+
		"use another directory", e.Dir, e.PID, e.Node)
}

// RefuseSecond looks for a run that answers, and goes on answering (*OtherRunError): survivors of a dead rank need time
// to leave. A contact file that a dead run left behind is no obstacle. The same supervisor ends one start before it
// begins the next, so RefuseSecond waits for the end of a rank 0 that it has started. The supervisor decides how long a
// start may take.
func RefuseSecond(ctx context.Context, dir, supervisor string, log *slog.Logger) error {
	us, _ := job.ParseSupervisor(supervisor) // without one there is no earlier start
	pause := sleep.Backoff{First: lingering / 1000, Longest: lingering / 10}
	for end, warned := time.Now().Add(lingering), false; ; {
		err := Answering(ctx, dir)
		if err == nil {
			return nil
		}
		var other *OtherRunError
		switch {
		case time.Now().Before(end) || warned:
		case errors.As(err, &other) && other.supervisor != "" && other.supervisor == us.Address():
			log.Warn("holdfast: waiting for the end of an earlier start of this run", "node", other.Node,
				"process", other.PID)
			warned = true
		default:
			return err
		}
		if sleep.For(ctx, pause.Next()) != nil {
			return err
		}
	}
}

// Answering returns an *OtherRunError when the run that published the contact file is alive.
func Answering(ctx context.Context, dir string) error {
	k, err := job.ReadContact(dir, job.ContactName)
	if err != nil || k.HasEnded() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := control.DialClient(ctx, k.Addr, 0, k.Key)
	if err != nil {
		return nil // it is gone, or the port is somebody else's by now
	}
	_ = conn.Close() // it has answered the proof, which is all there was to ask
	return &OtherRunError{Dir: dir, Node: k.Node, PID: k.PID, supervisor: k.Supervisor}
}
