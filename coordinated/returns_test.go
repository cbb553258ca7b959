package coordinated

import (
	"errors"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

var returns = flag.Int("returns", 60, "(program, call) pairs at which a rank returns by an error")

// TestEveryEarlyReturn lets one rank of a generated program return by an error at one of
// its calls, and close, as `defer ck.Close()` does. The others may wait for it: the job
// ends all the same, and whoever is told hears of the rank that has closed.
func TestEveryEarlyReturn(t *testing.T) {
	rng := rand.New(rand.NewPCG(*pairsSeed, 7))
	told := 0
	for done, seed := 0, *pairsSeed; done < *returns; seed++ {
		list := sketches(rand.New(rand.NewPCG(seed, 5)))
		s := list[rng.IntN(len(list))]
		opt, err := memOptions()
		if err != nil {
			t.Fatal(err)
		}
		_, calls, _, err := s.start(jobRun{seed: seed, opt: opt})
		if err != nil {
			t.Fatalf("%s, seed %d, undisturbed: %v", s.name, seed, err)
		}
		for range 4 {
			at := 1 + rng.IntN(calls)
			if opt, err = memOptions(); err != nil {
				t.Fatal(err)
			}
			opt.WaitTimeout = 100 * time.Millisecond
			ended := make(chan error, 1)
			go func() { _, _, _, err := s.start(jobRun{seed: seed, opt: opt, returnAt: at}); ended <- err }()
			select {
			case err := <-ended:
				var lost *LostError
				if errors.As(err, &lost) {
					told++
				} else if err != nil && !errors.Is(err, errReturns) && !errors.Is(err, mpitest.ErrDeadlock) {
					t.Errorf("%s, seed %d, return at call %d: %v", s.name, seed, at, err)
				}
			case <-time.After(2 * time.Minute):
				t.Fatalf("%s, seed %d: the job hangs after a return at call %d", s.name, seed, at)
			}
			done++
		}
	}
	if told == 0 {
		t.Error("nobody was ever told: the test shows nothing")
	}
	t.Logf("%d returns, %d of them left somebody waiting, seed %d", *returns, told, *pairsSeed)
}
