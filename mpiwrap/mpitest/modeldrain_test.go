package mpitest

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// broken is a drain that is given up in the middle: by rank, after how many looks at its
// context that has ended. It ends on all ranks: one that has given up need not receive what
// another's drain waits for.
type broken []int

// patience is fewer looks than a drain has before it sleeps between them, and enough for one that can end.
const patience = 190

// drawBroken draws a drain that some ranks give up, now and then; nil is none.
func drawBroken(rng *rand.Rand, size int) broken {
	if rng.IntN(3) > 0 {
		return nil
	}
	b := make(broken, size)
	for i := range b {
		if b[i] = rng.IntN(30); rng.IntN(2) == 0 {
			b[i] = patience
		}
	}
	return b
}

// drain gives a drain up. The program continues with what it has received or not; a rank
// that was late to give up may have ended it.
func (b broken) drain(w *mpiwrap.Comm) error {
	if b == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if _, err := endpoint.Of(w).Drain(&looks{ctx, b[w.Rank()], cancel}); err != nil &&
		!errors.Is(err, mpiwrap.ErrDrainIncomplete) {
		return err
	}
	return nil
}

// looks is a context that ends when it has been looked at so often. A rank looks from one
// goroutine.
type looks struct {
	context.Context
	left   int
	cancel func()
}

func (l *looks) Err() error {
	if l.left--; l.left < 0 {
		l.cancel()
	}
	return l.Context.Err()
}
