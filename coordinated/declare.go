package coordinated

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/arrays"
	"github.com/holdfast-hpc/holdfast/storage"
)

// compareDeclared makes sure, before anything is restored, that what the ranks declare of arrays fits together: what
// every checkpoint would fail with ends the program now, on all ranks alike. Rank 0 compares; the others hear the
// outcome. A program in another process declares its arrays at each checkpoint anew, so only that checks them.
func (c *Checkpointer) compareDeclared() error {
	data := arrays.Nothing()
	if c.main.far == nil {
		var err error
		if data, err = c.state.Declared(); err != nil {
			data = arrays.Failed(err)
		}
	}
	verdict, err := c.meetDeclared(0, "arrays", data)
	return errors.Join(verdict, err)
}

// meetDeclared compares what the ranks declare at a stage of Restore, and returns what is wrong with it.
func (c *Checkpointer) meetDeclared(e cut.Epoch, stage string, data []byte) (verdict, err error) {
	c.main.Meeting.Store(true)
	defer c.main.Meeting.Store(false)
	blobs, err := c.agent.Meet(c.life.ctx, cut.Meeting{Epoch: e, Stage: agent.StageRestore + stage,
		Data: data, Brief: arrays.Judge, Whole: func(int) bool { return false }})
	if err != nil {
		return nil, err
	}
	return arrays.Verdict(blobs), nil
}

// stageDivided is the stage of a cut in which ranks say how arrays are divided that change.
const stageDivided = "divided"

// divided asks the program how arrays that change are divided now, and compares it with the other ranks'. Where
// nothing changes it returns at once, and costs nothing. A rank that has failed before does not wait for the others,
// but lets them go.
func (c *Checkpointer) divided(ctx context.Context, es *EpochStats, failed error) error {
	if !c.state.Changes() {
		return failed
	}
	var said []byte
	err := failed
	if err == nil {
		said, err = c.state.Divided()
	}
	if err != nil {
		return errors.Join(err, c.agent.Contribute(c.life.ctx, cut.Epoch(es.Epoch), stageDivided, arrays.Failed(err)))
	}
	blobs, err := c.agent.Meet(ctx, cut.Meeting{Epoch: cut.Epoch(es.Epoch), Stage: stageDivided, Data: said,
		Brief: c.state.JudgeDivided, Whole: func(int) bool { return false }})
	if err != nil {
		return fmt.Errorf("compare how arrays are divided: %w", err)
	}
	return c.state.Place(c.state.JudgeDivided(blobs), c.topo.Rank)
}

// planned has the program say what it wants of the arrays of an epoch that change, and makes sure that all ranks
// together want each element once: what fell into a hole would be lost. Not ready: another rank has failed, which the
// vote will say.
func (c *Checkpointer) planned(ctx context.Context, src *shards, a *arrays.Attempt, e storage.Epoch,
	failed error) (ready bool, err error) {
	if !c.state.Changes() {
		return failed == nil, failed
	}
	var data []byte
	err = failed
	if err == nil {
		data, err = a.Plan(ctx, src)
	}
	if err != nil {
		data = arrays.Failed(nil)
	}
	verdict, merr := c.meetDeclared(cut.Epoch(e), "division", data)
	switch {
	case err != nil || merr != nil:
		return false, errors.Join(err, merr)
	case errors.Is(verdict, arrays.ErrNotDeclared):
		return false, nil
	case verdict != nil:
		return false, &divisionError{verdict}
	}
	return true, nil
}

// divisionError says that what the ranks want of an array does not fit together: no other epoch would help.
type divisionError struct{ error }

func (e *divisionError) Unwrap() error { return e.error }
