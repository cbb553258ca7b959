package coordinated

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// steps are those of a checkpoint at which a rank can die.
var steps = []string{"armed", "arrived", "cut", "drained", "captured", "put", "voted", "committed", "part", "copied"}

// TestKillAtEveryStep kills each rank at each step of a checkpoint in turn. The
// survivors must learn who is lost, and a restart, from the epoch if it came to
// be and from the start if not, must end as the undisturbed run.
func TestKillAtEveryStep(t *testing.T) {
	for _, s := range sketches(rand.New(rand.NewPCG(3, 3))) {
		if s.name != "stencil" && s.name != "grid" && s.name != "pipeline" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			opt, err := memOptions()
			if err != nil {
				t.Fatal(err)
			}
			want, calls, _, err := s.start(jobRun{seed: 3, opt: opt})
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range steps {
				for rank := range s.ranks {
					if err := s.killOnce(step, rank, calls/3, want); err != nil {
						t.Errorf("rank %d killed at step %q: %v", rank, step, err)
					}
				}
			}
		})
	}
}

func (s *sketch) killOnce(step string, rank, at int, want []mem) error {
	_, err := s.killWith(func(*Options) {}, step, rank, at, want)
	return err
}

// killWith is killOnce with other options, and says whether the rank was killed.
func (s *sketch) killWith(set func(*Options), step string, rank, at int, want []mem) (dead bool, err error) {
	opt, err := memOptions()
	if err != nil {
		return false, err
	}
	set(&opt)
	var killed atomic.Bool
	_, _, _, err = s.start(jobRun{seed: 3, opt: opt, at: at, goOn: true, killRank: rank, killAt: step, killed: &killed})
	var lost *LostError
	switch {
	case err == nil && killed.Load():
		return true, errors.New("nobody noticed")
	case errors.Is(err, mpitest.ErrDeadlock): // the simulator noticed first that nobody can go on
	case err != nil && (!errors.As(err, &lost) || lost.Rank != rank):
		return killed.Load(), fmt.Errorf("the survivors do not name the rank: %w", err)
	}
	states, _, _, err := s.start(jobRun{seed: 3, opt: opt})
	if err != nil {
		return killed.Load(), fmt.Errorf("restart: %w", err)
	}
	return killed.Load(), sameStates(states, want)
}
