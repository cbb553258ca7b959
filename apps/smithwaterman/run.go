package main

import (
	"context"
	"fmt"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/smithwaterman/align"
	"github.com/holdfast-hpc/holdfast/apps/smithwaterman/kernel"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// Tags of the messages between ranks.
const (
	tagBorder = 1 // a border record; strips in ascending order
	tagWalk   = 2 // an alignment that continues to the left
)

// A sweep is the state of one rank. Protected values are marked.
type sweep struct {
	*job.Job
	problem *problem
	engine  *engine // its buffers are protected with the device
	next    int64   // protected: the next diagonal of tiles
	sends   []send
}

// A send is a border on its way to the right.
type send struct {
	request *mpiwrap.Request
	record  []int32
}

// align is the program on one rank.
func (c *config) align(ctx context.Context, j *job.Job) error {
	p, err := c.load()
	if err != nil {
		return err
	}
	rank, size := j.World.Rank(), j.World.Size()
	columns := len(p.b.Codes)
	if len(p.a.Codes) == 0 || columns < size {
		return fmt.Errorf("%d by %d letters on %d ranks: want a letter of the first sequence, "+
			"and one of the second for each rank", len(p.a.Codes), columns, size)
	}
	lo, hi := columns*rank/size, columns*(rank+1)/size
	mine := part{a: p.a.Codes, b: p.b.Codes[lo:hi], begin: lo, keep: !c.scoreOnly}
	e, err := newEngine(j.Device, p.scoring, mine)
	if err != nil {
		return err
	}
	s := &sweep{Job: j, problem: p, engine: e}
	restored, err := s.Restore(ctx, p.identity(c.scoreOnly), nil, job.State{Name: "next", Value: &s.next})
	if err != nil {
		return err
	}
	if err := e.build(j.Device); err != nil {
		return err
	}
	if restored {
		s.Sayf("continues from diagonal %d of %d", s.next, e.diagonals())
	} else if err := e.prepare(); err != nil {
		return err
	}
	if err := s.loop(ctx); err != nil {
		return err
	}
	return s.finish(c)
}

func (s *sweep) loop(ctx context.Context) error {
	shown := s.Progress(s.engine.diagonals())
	for ; s.next < int64(s.engine.diagonals()); s.next++ {
		if err := s.Checkpoints.Point(ctx); err != nil {
			return err
		}
		shown.Step(int(s.next))
		if err := s.step(int(s.next)); err != nil {
			return err
		}
	}
	if err := s.sent(true); err != nil {
		return err
	}
	if err := s.engine.queue.Finish(); err != nil {
		return err
	}
	shown.Step(int(s.next))
	return s.Hold(ctx)
}

// step computes one diagonal: it takes in the left border of the strip that
// begins with it, and passes on the right border of the strip that ends with it.
func (s *sweep) step(diagonal int) error {
	e := s.engine
	if s.World.Rank() > 0 && diagonal < e.strips() {
		record := make([]int32, kernel.Border)
		if _, err := mpiwrap.Recv(s.World, record, s.World.Rank()-1, tagBorder); err != nil {
			return err
		}
		if err := e.setBorder(diagonal, record); err != nil {
			return err
		}
	}
	if err := e.launch(diagonal); err != nil {
		return err
	}
	ended := diagonal - e.tiles() + 1
	if ended < 0 || s.World.Rank() == s.World.Size()-1 {
		return nil
	}
	record := make([]int32, kernel.Border)
	if err := e.rightBorder(ended, record); err != nil {
		return err
	}
	request, err := mpiwrap.Isend(s.World, record, s.World.Rank()+1, tagBorder)
	if err != nil {
		return err
	}
	s.sends = append(s.sends, send{request, record})
	return s.sent(false)
}

// sent forgets the sends that are complete; all waits for the others.
func (s *sweep) sent(all bool) error {
	for len(s.sends) > 0 {
		first := s.sends[0].request
		if all {
			if _, err := first.Wait(); err != nil {
				return err
			}
		} else if _, done, err := first.Test(); err != nil || !done {
			return err
		}
		s.sends = s.sends[1:]
	}
	return nil
}

// best returns the best cell of all ranks. It is collective.
func (s *sweep) best() (align.Best, error) {
	mine, err := s.engine.bestCell()
	if err != nil {
		return mine, err
	}
	all := make([]int64, 3*s.World.Size())
	own := []int64{int64(mine.Score), int64(mine.Row), int64(mine.Col)}
	if err := mpiwrap.Allgather(s.World, all, own); err != nil {
		return mine, err
	}
	var best align.Best
	for i := 0; i < len(all); i += 3 {
		c := align.Best{Score: int32(all[i]), Row: int(all[i+1]), Col: int(all[i+2])}
		if c.Score > 0 && c.Better(best) {
			best = c
		}
	}
	return best, nil
}
