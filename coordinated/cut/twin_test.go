package cut

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// twin decides by looking at everything what the machines decide by talking: it
// knows the whole text of the program and computes the least cut, by pushing
// ranks to their next Point until nothing is missing. It is slow and obvious.
//
// R1 and R2 release a rank only if no cut exists without that, so machines and
// twin must agree on the Point of every rank. The programs name their sources;
// with AnySource the least cut is not unique.
type twin struct {
	ops [][]op // of each rank, all
	pos []int  // the rank's cut is before this operation
}

// newTwin starts every rank at the first Point that it may park at: the next
// one after it was armed or, with a hint, the one that the hint names.
func newTwin(ops [][]op, armed []uint64, target uint64) *twin {
	w := &twin{ops: ops, pos: make([]int, len(ops))}
	for r := range ops {
		for w.points(r) < max(armed[r]+1, target) && w.pos[r] < len(ops[r]) {
			w.push(r)
		}
	}
	return w
}

// push moves a rank on to behind its next Point, or to its end.
func (w *twin) push(r int) {
	for w.pos[r] < len(w.ops[r]) {
		w.pos[r]++
		if w.ops[r][w.pos[r]-1].kind == opPoint {
			return
		}
	}
}

// count counts the operations of a rank before its cut that fit.
func (w *twin) count(r int, fits func(o op) bool) int {
	n := 0
	for _, o := range w.ops[r][:w.pos[r]] {
		if fits(o) {
			n++
		}
	}
	return n
}

func (w *twin) points(r int) uint64 {
	return uint64(w.count(r, func(o op) bool { return o.kind == opPoint }))
}

// missing names a rank without whose next Point there is no cut: it has yet to
// send what another receives before its cut, or to enter a collective that
// another member enters before its own.
func (w *twin) missing(comms map[string][]int) (int, bool) {
	for r := range w.ops {
		for s := range w.ops {
			if w.owes(s, r) {
				return s, true
			}
		}
	}
	for name, members := range comms {
		entered := func(r int) int {
			return w.count(r, func(o op) bool { return o.kind == opColl && o.comm == name })
		}
		for _, a := range members {
			for _, b := range members {
				if entered(a) < entered(b) {
					return a, true
				}
			}
		}
	}
	return 0, false
}

// owes reports whether r receives more from s, under some tag, than s sends.
func (w *twin) owes(s, r int) bool {
	for tag := range 10 {
		sends := w.count(s, func(o op) bool {
			return (o.kind == opSend || o.kind == opSsend) && o.peer == r && o.tag == tag
		})
		recvs := w.count(r, func(o op) bool { return o.kind == opRecv && o.peer == s && o.tag == tag })
		if sends < recvs {
			return true
		}
	}
	return false
}

func (w *twin) cut(comms map[string][]int) {
	for {
		r, ok := w.missing(comms)
		if !ok {
			return
		}
		w.push(r)
	}
}

// agree runs a program to its cut and compares it with the twin's.
func agree(w *model, ops [][]op) error {
	if err := w.run(10 * time.Second); err != nil {
		return err
	}
	armed, target := make([]uint64, len(w.ranks)), w.ranks[0].m.target
	for i, r := range w.ranks {
		armed[i] = r.armedAt
	}
	t := newTwin(ops, armed, target)
	t.cut(w.comms)
	for i, r := range w.ranks {
		if got, want := r.points, t.points(i); got != want {
			return fmt.Errorf("rank %d: cut at its Point %d, the least cut has %d (armed at %d, target %d)\n%s",
				i, got, want, armed[i], target, w.standing())
		}
	}
	return nil
}

// TestLeastCut compares machines and twin on the shapes that name their sources,
// with and without R0.
func TestLeastCut(t *testing.T) {
	const iters = 60
	for _, sh := range shapes {
		if sh.anySource {
			continue
		}
		t.Run(sh.name, func(t *testing.T) {
			for seed := range uint64(40) {
				n := 2 + int(seed%5)
				comms := map[string][]int(nil)
				if sh.comms != nil {
					comms = sh.comms(n)
				}
				w := newModel(seed, n, comms, sh.prog(n, iters), func(c *Config) { c.NoHint = seed%2 == 0 })
				w.askAtRandom(4 * time.Millisecond)
				ops := make([][]op, n)
				for r := range ops {
					ops[r] = unroll(sh.prog(n, iters)(r))
				}
				if err := agree(w, ops); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

func unroll(p program) []op {
	var out []op
	for {
		o, ok := p(nil)
		if !ok {
			return out
		}
		out = append(out, o)
	}
}

var programs = flag.Uint64("programs", 300, "random programs to try; the seeds count up from 0")

// TestRandomPrograms compares them on programs without any pattern: messages
// under several tags that are received late, collectives on overlapping
// communicators, Points that come seldom and unevenly.
func TestRandomPrograms(t *testing.T) {
	seeds := *programs
	if testing.Short() {
		seeds = min(seeds, 100)
	}
	midway := 0
	for seed := range seeds {
		ops, comms := generate(seed, false)
		w := newModel(seed, len(ops), comms, func(r int) program { return replayOps(ops[r]) },
			func(c *Config) { c.NoHint = seed%2 == 0 })
		w.askAtRandom(3 * time.Millisecond)
		if err := agree(w, ops); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, r := range w.ranks {
			if !r.done {
				midway++
				break
			}
		}
	}
	if midway < int(seeds)/2 {
		t.Errorf("only %d of %d cuts were made before the end of the program", midway, seeds)
	}
}

func replayOps(ops []op) program {
	return func(*modelRank) (op, bool) {
		if len(ops) == 0 {
			return op{}, false
		}
		o := ops[0]
		ops = ops[1:]
		return o, true
	}
}

// TestRandomWild is the same with receives from any source on some ranks. The
// least cut is not unique then, but there must be a cut.
func TestRandomWild(t *testing.T) {
	for seed := range *programs / 2 {
		ops, comms := generate(seed, true)
		w := newModel(seed, len(ops), comms, func(r int) program { return replayOps(ops[r]) },
			func(c *Config) { c.NoHint = seed%2 == 0 })
		w.askAtRandom(3 * time.Millisecond)
		if err := w.run(10 * time.Second); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// generate makes a program that cannot hang: it is written as one sequence of
// messages and collectives, of which each rank has its part in that order;
// receives may move back. A wild rank receives everything from any source under
// any tag, so that its receives cannot take each other's messages.
func generate(seed uint64, withWild bool) ([][]op, map[string][]int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	n := 2 + rng.IntN(5)
	comms := map[string][]int{}
	for i := range rng.IntN(3) {
		name := fmt.Sprintf("c%d", i)
		for r := range n {
			if rng.IntN(2) == 0 {
				comms[name] = append(comms[name], r)
			}
		}
		if len(comms[name]) < 2 {
			delete(comms, name)
		}
	}
	ops := make([][]op, n)
	wild := make([]bool, n)
	for r := range wild {
		wild[r] = withWild && rng.IntN(2) == 0
	}
	late := make([][]op, n) // receives whose message has been sent
	for range 80 * n {
		r := rng.IntN(n)
		switch k := rng.IntN(10); {
		case k < 2:
			ops[r] = append(ops[r], compute(200))
		case k < 4:
			ops[r] = append(ops[r], point())
		case k < 7:
			to := (r + 1 + rng.IntN(n-1)) % n
			tag := rng.IntN(3)
			switch {
			case wild[to]:
				ops[r] = append(ops[r], send(to, tag))
				late[to] = append(late[to], recv(AnySource, anyTag))
			case rng.IntN(5) == 0: // under a tag of its own, received at once
				ops[r] = append(ops[r], ssend(to, 9))
				ops[to] = append(ops[to], recv(r, 9))
			default:
				ops[r] = append(ops[r], send(to, tag))
				late[to] = append(late[to], recv(r, tag))
			}
		case k < 9:
			if len(late[r]) > 0 {
				i := rng.IntN(len(late[r]))
				ops[r] = append(ops[r], late[r][i])
				late[r] = append(late[r][:i:i], late[r][i+1:]...)
			}
		default:
			enterAll(ops, comms, rng)
		}
	}
	return ops, comms
}

// enterAll adds a collective to all members of a communicator.
func enterAll(ops [][]op, comms map[string][]int, rng *rand.Rand) {
	o, name := coll, fmt.Sprintf("c%d", rng.IntN(3))
	if rng.IntN(2) == 0 {
		o = bcast
	}
	members := comms[name]
	if members == nil {
		name = "world"
		for r := range ops {
			members = append(members, r)
		}
	}
	for _, r := range members {
		ops[r] = append(ops[r], o(name))
	}
}
