package cut

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// loop makes a program that runs body(iteration) again and again, iters times.
func loop(iters int, body func(i int) []op) program {
	var buf []op
	i := 0
	return func(*modelRank) (op, bool) {
		for len(buf) == 0 {
			if i == iters {
				return op{}, false
			}
			buf = body(i)
			i++
		}
		o := buf[0]
		buf = buf[1:]
		return o, true
	}
}

func compute(n int) op      { return op{kind: opCompute, n: n} }
func point() op             { return op{kind: opPoint} }
func send(to, tag int) op   { return op{kind: opSend, peer: to, tag: tag} }
func ssend(to, tag int) op  { return op{kind: opSsend, peer: to, tag: tag} }
func recv(from, tag int) op { return op{kind: opRecv, peer: from, tag: tag} }
func coll(comm string) op   { return op{kind: opColl, comm: comm} }
func bcast(comm string) op  { return op{kind: opColl, comm: comm, bcast: true} }

// shapes are the communication patterns of real programs.
var shapes = []struct {
	name  string
	comms func(n int) map[string][]int
	prog  func(n, iters int) func(r int) program

	anySource bool
}{
	{"stencil", nil, func(n, iters int) func(int) program {
		return func(r int) program {
			l, h := (r+n-1)%n, (r+1)%n
			return loop(iters, func(i int) []op {
				return []op{compute(50), send(l, 1), send(h, 2), recv(h, 1), recv(l, 2), point()}
			})
		}
	}, false},
	{"stencil with allreduce", nil, func(n, iters int) func(int) program {
		return func(r int) program {
			l, h := (r+n-1)%n, (r+1)%n
			return loop(iters, func(i int) []op {
				ops := []op{compute(50 + 20*r), send(l, 1), send(h, 2), recv(h, 1), recv(l, 2), point()}
				if i%3 == 0 {
					ops = append(ops, coll("world"))
				}
				return ops
			})
		}
	}, false},
	{"broadcasts whose root runs ahead", nil, func(n, iters int) func(int) program {
		return func(r int) program {
			return loop(iters, func(i int) []op {
				o := []op{point(), bcast("world"), compute(10 + 40*r)}
				if i%7 == 6 {
					o = append(o, coll("world"))
				}
				return o
			})
		}
	}, false},
	{"pipeline", nil, func(n, iters int) func(int) program {
		return func(r int) program {
			return loop(iters, func(i int) []op {
				var ops []op
				if r > 0 {
					ops = append(ops, recv(r-1, 1))
				}
				ops = append(ops, compute(30))
				if r < n-1 {
					ops = append(ops, send(r+1, 1))
				}
				return append(ops, point())
			})
		}
	}, false},
	{"synchronous ring", nil, func(n, iters int) func(int) program {
		return func(r int) program {
			return loop(iters, func(i int) []op {
				if r%2 == 0 {
					return []op{ssend((r+1)%n, 1), recv((r+n-1)%n, 1), compute(20), point()}
				}
				return []op{recv((r+n-1)%n, 1), ssend((r+1)%n, 1), compute(40), point()}
			})
		}
	}, false},
	{"crossed tags", nil, func(n, iters int) func(int) program {
		return func(r int) program {
			p := r ^ 1
			if p >= n {
				return loop(iters, func(i int) []op { return []op{compute(10), point()} })
			}
			if r%2 == 0 {
				return loop(iters, func(i int) []op {
					return []op{send(p, 1), point(), compute(10), point(), send(p, 2), point(), recv(p, 3), point()}
				})
			}
			return loop(iters, func(i int) []op {
				return []op{recv(p, 2), point(), recv(p, 1), compute(30), send(p, 3), point()}
			})
		}
	}, false},
	{"unequal points", nil, func(n, iters int) func(int) program {
		return func(r int) program {
			return loop(iters, func(i int) []op {
				ops := []op{compute(20)}
				for range 1 + r%3 {
					ops = append(ops, point(), compute(10))
				}
				return append(ops, coll("world"))
			})
		}
	}, false},
	{"rows and columns", func(n int) map[string][]int {
		comms := map[string][]int{}
		for i := range n {
			row, col := fmt.Sprintf("row%d", i/2), fmt.Sprintf("col%d", i%2)
			comms[row] = append(comms[row], i)
			comms[col] = append(comms[col], i)
		}
		return comms
	}, func(n, iters int) func(int) program {
		return func(r int) program {
			return loop(iters, func(i int) []op {
				return []op{compute(20), bcast(fmt.Sprintf("row%d", r/2)), point(), compute(5 * r),
					coll(fmt.Sprintf("col%d", r%2)), point()}
			})
		}
	}, false},
	{"master and workers", nil, func(n, iters int) func(int) program {
		return func(r int) program {
			if n == 1 {
				return loop(iters, func(int) []op { return []op{point(), compute(10)} })
			}
			if r == 0 {
				return master(n, iters)
			}
			return worker()
		}
	}, true},
	{"one finishes early", nil, func(n, iters int) func(int) program {
		return func(r int) program {
			if r == n-1 {
				return loop(1, func(int) []op { return []op{point()} })
			}
			return loop(iters, func(i int) []op { return []op{compute(40), point()} })
		}
	}, false},
	{"gather to one without collectives", nil, func(n, iters int) func(int) program {
		return func(r int) program {
			return loop(iters, func(i int) []op {
				if r > 0 {
					return []op{compute(10 * r), send(0, 1), point()}
				}
				var ops []op
				for range n - 1 {
					ops = append(ops, recv(AnySource, 1), compute(3))
				}
				return append(ops, point())
			})
		}
	}, true},
}

// master hands a task to whoever reports, iters in all, then tells everyone to
// stop (tag 9).
func master(n, iters int) program {
	left, stopped, phase := iters, 0, 0
	return func(r *modelRank) (op, bool) {
		switch phase {
		case 0:
			if stopped == n-1 {
				return op{}, false
			}
			phase = 1
			return point(), true
		case 1:
			phase = 2
			return recv(AnySource, anyTag), true
		}
		phase = 0
		if left > 0 {
			left--
			return send(r.lastMsg.from, 5), true
		}
		stopped++
		return send(r.lastMsg.from, 9), true
	}
}

func worker() program {
	phase := 0
	return func(r *modelRank) (op, bool) {
		phase++
		switch phase {
		case 1:
			return send(0, 1), true
		case 2:
			return recv(0, anyTag), true
		case 3:
			if r.lastMsg.tag == 9 {
				return op{}, false
			}
			return compute(30 * r.id), true
		case 4:
			return point(), true
		}
		phase = 0
		return point(), true
	}
}

// TestRandomMoments asks for a cut at a random moment of each shape, under
// random delays, and checks the invariants at the cut.
func TestRandomMoments(t *testing.T) {
	seeds := 150
	if testing.Short() {
		seeds = 20
	}
	for _, sh := range shapes {
		t.Run(sh.name, func(t *testing.T) {
			for seed := range seeds {
				n := 2 + seed%7
				if err := cutOnce(sh.name, uint64(seed), n); err != nil {
					t.Fatalf("seed %d, %d ranks: %v", seed, n, err)
				}
			}
		})
	}
}

// TestNoisyControl duplicates and reorders control messages: the protocol may
// then give an epoch up, but must not cut wrongly.
func TestNoisyControl(t *testing.T) {
	for _, sh := range shapes {
		t.Run(sh.name, func(t *testing.T) {
			cuts, n := 0, someSeeds(150)
			for seed := range n {
				w := start(sh.name, seed, 2+int(seed%7))
				w.noise = true
				if err := w.run(time.Hour); err == nil {
					cuts++
				} else if w.gaveUp == 0 || w.cuts > 0 {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if cuts < int(n)*9/10 {
				t.Errorf("%d of %d cut", cuts, n)
			}
		})
	}
}

// TestLossyControl loses some as well. A rank may then miss a cut; that
// is for the drain and the vote on the epoch to notice. But no rank may
// cut while the world is not still.
func TestLossyControl(t *testing.T) {
	for _, sh := range shapes {
		t.Run(sh.name, func(t *testing.T) {
			cuts := 0
			for seed := range someSeeds(60) {
				w := start(sh.name, seed, 2+int(seed%7), func(c *Config) { c.Timeout = 200 * time.Millisecond })
				w.noise, w.loss = true, true
				_ = w.run(400 * time.Millisecond) // without a cut for some, or given up: both are fine
				if w.wrong != nil {
					t.Fatalf("seed %d: %v", seed, w.wrong)
				}
				cuts += w.cuts
			}
			if cuts == 0 {
				t.Error("no rank ever cut: the test shows nothing")
			}
		})
	}
}

// someSeeds returns how many random programs of a shape a test runs: n for 600 of -programs, half of them in short
// tests.
func someSeeds(n uint64) uint64 {
	if testing.Short() {
		n /= 2
	}
	return max(1, n**programs/600)
}

func start(shape string, seed uint64, n int, options ...func(*Config)) *model {
	for _, sh := range shapes {
		if sh.name != shape {
			continue
		}
		comms := map[string][]int(nil)
		if sh.comms != nil {
			comms = sh.comms(n)
		}
		w := newModel(seed, n, comms, sh.prog(n, 400), options...)
		w.askAtRandom(20 * time.Millisecond)
		return w
	}
	panic("no shape " + shape)
}

func cutOnce(shape string, seed uint64, n int) error {
	return start(shape, seed, n).run(10 * time.Second)
}

// TestNonsense feeds machines messages that no machine would send: they may do
// as they like, short of a panic.
func TestNonsense(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 11))
		parent, children := Place(1, 7, 2)
		m, err := New(Config{Rank: 1, Size: 7, Parent: parent, Children: children})
		if err != nil {
			t.Fatal(err)
		}
		for range 500 {
			m.Step(nonsense(rng))
		}
	}
}

func nonsense(rng *rand.Rand) Event {
	small := func() uint64 { return rng.Uint64N(4) }
	comms := []string{"world", "a", ""}
	switch rng.IntN(8) {
	case 0:
		return Arrived{Points: small(), Colls: []Coll{{Comm: comms[rng.IntN(3)], Size: rng.IntN(3), Entered: small()}}}
	case 1:
		return Sampled{Points: small(),
			Block: &Block{Call: small(), Waits: []Wait{{Source: rng.IntN(8) - 1, Comm: "a", Had: small()}}}}
	case 2:
		return Tick{Now: time.Duration(rng.Int64N(1e9))}
	case 3:
		return Captured{Epoch: Epoch(small())}
	}
	msg := Message{Kind: Kind(1 + rng.IntN(int(KindLost))), Epoch: Epoch(small()), Round: small(),
		Yes:  rng.IntN(2) == 0,
		Rank: rng.IntN(9), Had: small(), Min: small(), Max: small(), Sum: small(), Comm: comms[rng.IntN(3)],
		Colls: []Standing{{Comm: comms[rng.IntN(3)], Size: rng.IntN(8), Members: rng.IntN(8), Min: small(),
			Max: small()}},
		Found: []Candidate{{Rank: rng.IntN(9), Points: small()}}}
	return Received{From: rng.IntN(9), Msg: msg, Sent: small()}
}
