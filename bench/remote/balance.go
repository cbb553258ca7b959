package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/bench/apps"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
	"golang.org/x/sync/errgroup"
)

// published are the speed-ups of VOCL (Xiao et al., CCGrid 2012, Figure 10).
var published = map[string]float64{"matmul": 1.7, "nbody": 1.9, "smithwaterman": 1.7, "transpose": 1.4}

// balance runs two instances on one device, alone and with a balancer that may
// move one of them to the other device.
func (s *suite) balance(ctx context.Context) error {
	if s.big && s.devices < 2 {
		s.Skip("balance", "two instances", errors.New("it needs two devices, and there is one"))
		return nil
	}
	if !s.big {
		if err := s.halves(ctx); err != nil {
			return err
		}
	}
	for _, name := range s.apps("balance") {
		if s.Late("balance", name) {
			continue
		}
		load, err := s.load(ctx, name, max(2*s.o.Seconds, 2))
		if err != nil {
			return err
		}
		var alone, balanced bench.Samples
		for range max(s.Runs/2, 1) {
			for _, with := range []bool{false, true} {
				t, moved, err := s.pair(ctx, name, load, with)
				if err != nil {
					return err
				}
				if with && !moved {
					s.Step("%s: the balancer moved nothing", name)
				}
				if with {
					balanced = append(balanced, t)
				} else {
					alone = append(alone, t)
				}
			}
		}
		s.Add(bench.Row{Case: "balance", Metric: fmt.Sprintf("%s, two instances: speed-up (VOCL: %.1f)", name,
			published[name]), Unit: "1/s"}.
			Of(balanced.Rates(1), alone.Rates(1), nil))
	}
	return nil
}

// halves restarts the servers with one core each, so that they are two devices
// of which one does not slow the other down.
func (s *suite) halves(ctx context.Context) (err error) {
	if err := errors.Join(s.a.stop(), s.b.stop()); err != nil {
		return err
	}
	one := []string{"POCL_MAX_PTHREAD_COUNT=1", "POCL_CPU_MAX_CU_COUNT=1", "LP_NUM_THREADS=1"}
	if s.a, err = s.start(ctx, "a", one); err != nil {
		return err
	}
	s.b, err = s.start(ctx, "b", one)
	return err
}

// pair runs two instances on the first device and returns the time that the steps
// of the slower one take.
func (s *suite) pair(ctx context.Context, name string, load float64, with bool) (t float64, moved bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var balancing sync.WaitGroup
	defer balancing.Wait()
	var launches []*apps.Launch
	for n := range 2 {
		l, err := s.launch(name, load, s.at(s.a, s.a.unix), n)
		if err != nil {
			return 0, false, err
		}
		launches = append(launches, l)
	}
	over := make(chan struct{})
	if with {
		b := &gpud.Balancer{Servers: []string{s.a.unix, s.b.unix}, KeyFile: gpud.MoveKeyFile(s.a.key),
			Policy: &gpud.Window{N: 10}}
		balancing.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(20 * time.Millisecond):
				}
				orders, results, _ := b.Once(ctx)
				for i := range orders {
					moved = moved || results[i] == nil
					if results[i] != nil {
						s.Step("%s: not moved: %v", name, results[i])
					}
				}
			}
		})
	}
	var steps [2]float64
	var running errgroup.Group
	for n, l := range launches {
		running.Go(func() error {
			took, _, err := l.Run(ctx)
			if err == nil {
				steps[n] = took.Loop
			}
			return err
		})
	}
	err = running.Wait()
	close(over)
	balancing.Wait()
	return max(steps[0], steps[1]), moved, err
}
