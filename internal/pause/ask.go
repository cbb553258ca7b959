package pause

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/units"
)

// Ask is a request to holdfast run about all ranks.
type Ask struct {
	Do   string  `json:"do"`             // pause, resume, migrate or state
	Wait float64 `json:"wait,omitempty"` // seconds for kernels and copies to end
	To   string  `json:"to,omitempty"`   // of migrate: see MovesOn
}

// Answer is the result.
type Answer struct {
	Results  []Result  `json:"results,omitempty"`
	Programs []Program `json:"programs,omitempty"` // of state
	Error    string    `json:"error,omitempty"`
}

// AskRun has the holdfast run that a directory names carry out a request.
func AskRun(ctx context.Context, dir string, a Ask) (answer Answer, err error) {
	c, err := job.DialRun(ctx, dir)
	if err != nil {
		return answer, err
	}
	defer c.Close()
	err = c.Ask(ctx, a, &answer)
	return answer, err
}

// String sums it up for people.
func (a *Answer) String() string {
	var bytes int64
	var longest float64
	nodes, state := map[string]bool{}, "running"
	for i := range a.Results {
		r := &a.Results[i]
		bytes, longest, state, nodes[r.Node] = bytes+r.Bytes, max(longest, r.Total()), r.State, true
	}
	return fmt.Sprintf("%d ranks on %d nodes are %s: %s of device memory in %.1f s", len(a.Results), len(nodes), state,
		units.Bytes(bytes), longest)
}

// Do carries out the request with the processes of the group.
func (g *Group) Do(ctx context.Context, a Ask, answer *Answer) (err error) {
	wait := time.Duration(a.Wait * float64(time.Second))
	switch a.Do {
	case "pause":
		err = g.Pause(ctx, wait)
	case "resume":
		err = g.Resume(nil)
	case "migrate":
		err = g.Move(ctx, wait, MovesOn(a.To))
	case "state":
		answer.Programs, err = g.Programs()
		return err
	default:
		return fmt.Errorf("%q: holdfast run is of another release", a.Do)
	}
	answer.Results = g.Results()
	return err
}
