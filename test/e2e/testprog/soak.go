package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/storage"
)

// soak starts programs again and again in one process: each draws a program from the
// seed, runs it undisturbed, runs it with checkpoints at random moments, and restarts it from
// each of them. All ranks draw the same. The moments are checkpoints that were restarted from.
type soak struct {
	moments int
	seed    uint64
	first   int // round
	dir     string
	only    string // shape

	world  *mpiwrap.Comm
	done   int
	counts map[string]int           // moments by shape, and other things to tell
	spent  map[string]time.Duration // by what
	extent extent                   // of the undisturbed run, on this rank
	log    lastLog
}

func (s *soak) flags() {
	flag.IntVar(&s.moments, "soak", 0, "instead of one program, run random ones and restart each from checkpoints at "+
		"random moments, until there were as many")
	flag.Uint64Var(&s.seed, "seed", 1, "seed of the soak")
	flag.IntVar(&s.first, "round", 0, "round that the soak begins with")
	flag.StringVar(&s.dir, "dir", "", "existing directory for the checkpoints of the soak")
	flag.StringVar(&s.only, "only", "", "shape that the soak keeps to")
}

// run is the whole soak.
func (s *soak) run(world *mpiwrap.Comm) error {
	s.world, s.counts, s.spent = world, map[string]int{}, map[string]time.Duration{}
	begun := time.Now()
	for n := s.first; s.done < s.moments; n++ {
		d := s.draw(n)
		if err := s.round(d); err != nil {
			s.fail(d, err)
		}
	}
	if world.Rank() == 0 {
		s.report(time.Since(begun))
	}
	return mpiwrap.Finalize()
}

// report prints the numbers, and the mean time of each part of a restart.
func (s *soak) report(took time.Duration) {
	fmt.Printf("soak: %d moments in %v, %.1f ms each:", s.done, took.Round(time.Millisecond),
		took.Seconds()*1e3/float64(s.done))
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		fmt.Printf(" %s=%d", what, s.counts[what])
	}
	fmt.Printf("\nsoak: ms of a moment:")
	for _, what := range slices.Sorted(maps.Keys(s.spent)) {
		fmt.Printf(" %s=%.2f", what, s.spent[what].Seconds()*1e3/float64(s.done))
	}
	fmt.Println()
}

// fail ends the job, and leaves the directories.
func (s *soak) fail(d *drawn, err error) {
	fmt.Fprintf(os.Stderr, "soak: rank %d of %d, moment %d: %v\n%v\nlog of the last life:\n%s", s.world.Rank(),
		s.world.Size(), s.done, err, d, s.log.text())
	s.world.Abort(1)
}

// lost is called when another rank is lost.
func (s *soak) lost(e *coordinated.LostError) {
	fmt.Fprintf(os.Stderr, "soak: rank %d: %v\n%s", s.world.Rank(), e, s.log.text())
	os.Exit(1)
}

// round takes one program through its lives.
func (s *soak) round(d *drawn) error {
	if err := s.prepare(d); err != nil {
		return err
	}
	first, err := s.live(d, life{name: "undisturbed", pace: d.pace})
	if err != nil {
		return err
	}
	o, err := s.live(d, life{name: "checkpointed", opt: &d.opt, pace: d.pace, asks: d.asks, want: first.result})
	if err != nil {
		return err
	}
	epochs := o.epochs
	for i := 0; i < len(epochs); i++ {
		l := life{name: "restarted", opt: &d.opt, epoch: epochs[i], restores: true, want: first.result}
		if i == d.which && d.again != nil {
			l.name, l.asks, l.pace = "restarted and checkpointed", d.again, d.pace
		}
		if o, err = s.live(d, l); err != nil {
			return err
		}
		epochs = append(epochs, o.epochs...)
		s.moment(d)
	}
	if d.damage && len(epochs) > 1 {
		if err := s.fallBack(d, slices.Max(epochs), first.result); err != nil {
			return err
		}
	}
	return s.clear(d)
}

func (s *soak) moment(d *drawn) {
	s.done++
	s.counts[d.shape]++
}

// fallBack damages the newest epoch and restarts from what is left.
func (s *soak) fallBack(d *drawn, newest storage.Epoch, want string) error {
	if err := s.alone(func() error { return d.spoil(newest) }); err != nil {
		return err
	}
	o, err := s.live(d, life{name: "fallen back", opt: &d.opt, restores: true, want: want})
	if err != nil {
		return err
	}
	// The byte may have been an unused one, and of a pack that is cut short the
	// rank's own part may be left.
	if o.from != newest {
		s.counts["fallen-back"]++
	} else if d.cut && d.opt.Global == "" {
		return fmt.Errorf("epoch %d was restored, and rank %d's part of it is cut short", newest, d.victim)
	}
	s.moment(d)
	return nil
}

// lastLog is the log of the life that goes on.
type lastLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lastLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lastLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

func (l *lastLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
