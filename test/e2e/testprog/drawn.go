package main

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
)

// drawn is one round: a program, how it is checkpointed, and when. It is the same on all
// ranks.
type drawn struct {
	seed   uint64
	round  int
	shape  string
	steps  int
	size   int
	pace   time.Duration
	asks   []ask // of the first life
	again  []ask // of one restart
	which  int   // the restart that asks
	damage bool  // damage the newest epoch at last
	victim int   // rank whose shard is damaged
	where  float64
	cut    bool // cut the shard short, else change a byte
	opt    coordinated.Options
}

func (d *drawn) String() string {
	return fmt.Sprintf("shape %s, seed %d, round %d: steps %d, size %d, pace %v, global %t, compress %t, fanout %d, "+
		"pool %d, dir %s",
		d.shape, d.seed, d.round, d.steps, d.size, d.pace, d.opt.Global != "", d.opt.Compress, d.opt.Fanout,
		d.opt.MaxPool, d.dir())
}

// dir returns the round's directory.
func (d *drawn) dir() string { return filepath.Dir(d.opt.Local) }

// weights of the shapes.
var soaked = []string{"stencil", "apart", "broadcast", "grid", "large", "tickets", "polls", "groups", "leaves", "mail",
	"mail"}

// draw decides what a round does.
func (s *soak) draw(round int) *drawn {
	rng := rand.New(rand.NewPCG(s.seed, uint64(round)))
	ranks := s.world.Size()
	one := func(in int) bool { return rng.IntN(in) == 0 }
	d := &drawn{seed: s.seed, round: round, shape: soaked[rng.IntN(len(soaked))], steps: 6 + rng.IntN(30),
		size: 16 << rng.IntN(5),
		pace: time.Duration(50+rng.IntN(300)) * time.Microsecond, which: rng.IntN(3), damage: one(3),
		victim: rng.IntN(ranks), where: rng.Float64(), cut: one(4)}
	if s.only != "" {
		d.shape = s.only
	}
	if d.shape == "large" {
		d.steps = 3 + rng.IntN(4)
	}
	asks := func(n int) (list []ask) {
		for range n {
			list = append(list, ask{rng.IntN(ranks), askBy(rng.IntN(int(askWays))), rng.Float64()})
		}
		return list
	}
	d.asks = asks(3 + rng.IntN(5))
	if one(3) {
		d.again = asks(1 + rng.IntN(2))
	}
	base := filepath.Join(s.dir, fmt.Sprintf("round-%d", round))
	d.opt = coordinated.Options{Job: "soak", Local: filepath.Join(base, "local"), CheckpointSignals: []os.Signal{},
		StopSignals: []os.Signal{},
		Keep:        1000, Fanout: 1 + rng.IntN(3), PeerTimeout: time.Minute,
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)), OnLost: s.lost, Events: "off"}
	if one(4) {
		d.opt.Global, d.opt.Compress = filepath.Join(base, "global"), one(2)
	}
	if one(8) {
		d.opt.MaxPool = 1 // no room: state is written before the program continues
	}
	if one(8) {
		d.opt.Events = "on"
	}
	return d
}
