package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/smithwaterman/align"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// finish finds the alignment and writes it. It is collective; rank 0 writes.
func (s *sweep) finish(c *config) error {
	best, err := s.best()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if c.scoreOnly || best.Score == 0 {
		fmt.Fprintf(&text, "# 1: %s\n# 2: %s\n# Score: %d\n", s.problem.a.Name, s.problem.b.Name, best.Score)
		if best.Score > 0 {
			i, j := s.problem.places(best)
			fmt.Fprintf(&text, "# Ends at: %d %d\n", i, j)
		}
	} else {
		walk, err := s.trace(best)
		if err != nil || s.World.Rank() != 0 {
			return err
		}
		al := align.FromWalk(best.Score, walk)
		if got := al.Rescore(s.problem.scoring, s.problem.a.Codes, s.problem.b.Codes); got != al.Score {
			return fmt.Errorf("the alignment found is worth %d, but the matrix says %d: "+
				"device or library computes wrongly", got, al.Score)
		}
		if err := al.Write(&text, s.problem.scoring, s.problem.a, s.problem.b); err != nil {
			return err
		}
	}
	if s.World.Rank() != 0 {
		return nil
	}
	return s.write(c, best, text.Bytes())
}

func (s *sweep) write(c *config, best align.Best, text []byte) error {
	if c.common.Out != "" {
		if err := job.WriteResult(c.common.Out, func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		}); err != nil {
			return err
		}
	}
	fmt.Printf("matrix   %d by %d letters on %d ranks\n", len(s.problem.a.Codes), len(s.problem.b.Codes),
		s.World.Size())
	if best.Score > 0 {
		i, j := s.problem.places(best)
		fmt.Printf("score    %d, ending at letters %d and %d\n", best.Score, i, j)
	} else {
		fmt.Println("score    0: no letter of one goes with a letter of the other")
	}
	fmt.Printf("sha256   %x\n", sha256.Sum256(text))
	return nil
}

// trace follows the alignment back from its end. It is collective: the walk goes
// from the rank where the alignment ends to the left, down to rank 0, which
// returns all of it; the others return nil.
func (s *sweep) trace(best align.Best) (*align.Walk, error) {
	if best.Col >= s.engine.begin+len(s.engine.b) {
		// The alignment ends on a rank to the right.
		w, err := s.receiveWalk()
		if err != nil {
			return nil, err
		}
		return s.passOn(w)
	}
	if best.Col < s.engine.begin {
		return nil, nil
	}
	return s.passOn(&align.Walk{Row: best.Row, Col: best.Col})
}

// passOn follows the walk through the columns of this rank and sends it to the left.
func (s *sweep) passOn(w *align.Walk) (*align.Walk, error) {
	if err := s.engine.back(w); err != nil {
		return nil, err
	}
	if s.World.Rank() == 0 {
		return w, nil
	}
	left := s.World.Rank() - 1
	head := []int64{int64(w.Row), int64(w.Col), int64(w.State), int64(len(w.Ops))}
	if err := mpiwrap.Send(s.World, head, left, tagWalk); err != nil {
		return nil, err
	}
	return nil, mpiwrap.Send(s.World, w.Ops, left, tagWalk)
}

func (s *sweep) receiveWalk() (*align.Walk, error) {
	right := s.World.Rank() + 1
	head := make([]int64, 4)
	if _, err := mpiwrap.Recv(s.World, head, right, tagWalk); err != nil {
		return nil, err
	}
	w := &align.Walk{Row: int(head[0]), Col: int(head[1]), State: align.State(head[2])}
	w.Ops = make([]align.Op, head[3])
	_, err := mpiwrap.Recv(s.World, w.Ops, right, tagWalk)
	return w, err
}
