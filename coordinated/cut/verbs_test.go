package cut

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The commands that begin with a rank.
var rankVerbs = map[string]func(s *scene, r *actor, args []string) error{
	"points": func(s *scene, r *actor, args []string) (err error) {
		r.points, err = strconv.ParseUint(args[0], 10, 64)
		return err
	},
	"entered": func(s *scene, r *actor, args []string) (err error) {
		r.entered[args[0]], err = strconv.ParseUint(args[1], 10, 64)
		return err
	},
	"request": func(s *scene, r *actor, args []string) error {
		s.step(r, Request{Stop: slices.Contains(args, "stop")})
		return nil
	},
	"point":  func(s *scene, r *actor, _ []string) error { return s.point(r) },
	"finish": func(s *scene, r *actor, _ []string) error { return s.finish(r) },
	"send": func(s *scene, r *actor, args []string) error {
		p, err := s.actor(args[0])
		if err == nil {
			r.sent[p.id]++
		}
		return err
	},
	"get": func(s *scene, r *actor, args []string) error {
		p, err := s.actor(args[0])
		if err != nil || p.sent[r.id] == r.got[p.id] {
			return errors.Join(err, errors.New("nothing in flight"))
		}
		r.got[p.id]++
		return nil
	},
	"recv":  func(s *scene, r *actor, args []string) error { return s.enter(r, args) },
	"poll":  func(s *scene, r *actor, args []string) error { return s.enter(r, args) },
	"wait":  func(s *scene, r *actor, args []string) error { r.waits = args; return nil },
	"block": func(s *scene, r *actor, _ []string) error { return s.enter(r, nil) },
	"coll": func(s *scene, r *actor, args []string) error {
		r.entered[args[0]]++
		return s.enter(r, nil)
	},
	"start": func(s *scene, r *actor, args []string) error {
		r.entered[args[0]]++
		return nil
	},
	"leave": func(s *scene, r *actor, _ []string) error {
		r.block, r.waits = nil, nil
		return nil
	},
}

func (s *scene) enter(r *actor, waits []string) error {
	if r.waiting {
		return errors.New("the rank waits at a Point")
	}
	r.call++
	r.block, r.waits = &Block{Call: r.call}, waits
	return nil
}

func (s *scene) point(r *actor) error {
	if r.waiting || r.block != nil {
		return errors.New("the rank waits at a Point or is in a call")
	}
	r.points++
	if !r.armed {
		return nil
	}
	r.waiting = true
	sent := map[int]uint64{}
	for _, p := range r.m.Interest() {
		sent[p] = r.sent[p]
	}
	s.step(r, Arrived{Points: r.points, Colls: s.colls(r), Sent: sent})
	return nil
}

func (s *scene) finish(r *actor) error {
	r.waiting, r.finished = true, true
	s.step(r, Finished{Points: r.points, Colls: s.colls(r)})
	return nil
}

// The commands about all ranks.
var worldVerbs = map[string]func(s *scene, args []string) error{
	"comm": func(s *scene, args []string) error {
		for _, a := range args[1:] {
			if n, ok := strings.CutPrefix(a, "of="); ok {
				s.sizes[args[0]], _ = strconv.Atoi(n)
				continue
			}
			r, err := s.actor(a)
			if err != nil {
				return err
			}
			s.comms[args[0]] = append(s.comms[args[0]], r.id)
		}
		return nil
	},
	"forget":  func(s *scene, args []string) error { delete(s.comms, args[0]); return nil },
	"tick":    func(s *scene, args []string) error { return s.tick(args[0]) },
	"deliver": func(s *scene, args []string) error { return s.deliverAll(args) },
	"hold":    func(s *scene, args []string) error { s.held[args[0]] = true; return nil },
	"pass":    func(s *scene, args []string) error { delete(s.held, args[0]); return nil },
	"copy": func(s *scene, args []string) error {
		is := s.on(args[0])
		if len(is) == 0 {
			return errors.New("no message")
		}
		s.under = slices.Insert(s.under, is[0], s.under[is[0]])
		s.from = slices.Insert(s.from, is[0], s.from[is[0]])
		return nil
	},
	"swap": func(s *scene, args []string) error {
		is := s.on(args[0])
		if len(is) < 2 {
			return errors.New("no two messages")
		}
		s.under[is[0]], s.under[is[1]] = s.under[is[1]], s.under[is[0]]
		return nil
	},
	"lose": func(s *scene, args []string) error {
		is := s.on(args[0])
		if len(is) == 0 {
			return errors.New("no message")
		}
		s.remove(is[0])
		return nil
	},
	"captured": func(s *scene, args []string) error {
		for _, a := range args {
			r, err := s.actor(a)
			if err != nil {
				return err
			}
			r.waiting = r.finished
			s.step(r, Captured{Epoch: r.cut, Colls: s.colls(r)})
		}
		return nil
	},
	"done": func(s *scene, args []string) error {
		s.step(s.ranks[0], Done{Epoch: s.ranks[0].m.Epoch(), Failed: len(args) > 0 && args[0] == "failed"})
		return nil
	},
	"status": func(s *scene, _ []string) error {
		for _, r := range s.ranks {
			s.printf("%v", r.m)
		}
		return nil
	},
	"quiet": func(s *scene, _ []string) error { s.out.Reset(); return nil },
	"check": func(s *scene, _ []string) error { s.check(); return nil },
}

// on lists the messages under way on a channel "r->p", oldest first.
func (s *scene) on(channel string) []int {
	var out []int
	for i, m := range s.under {
		if fmt.Sprintf("%d->%d", s.from[i], m.To) == channel {
			out = append(out, i)
		}
	}
	return out
}

func (s *scene) remove(i int) (from int, m Send) {
	from, m = s.from[i], s.under[i]
	s.under, s.from = slices.Delete(s.under, i, i+1), slices.Delete(s.from, i, i+1)
	return from, m
}

func (s *scene) deliver(i int) {
	from, m := s.remove(i)
	to := s.ranks[m.To]
	s.step(to, Received{From: from, Msg: m.Msg, Sent: to.sent[m.Msg.Rank]})
}

func (s *scene) deliverAll(channels []string) error {
	for _, c := range channels {
		is := s.on(c)
		if len(is) == 0 {
			return errors.New("no message")
		}
		s.deliver(is[0])
	}
	for len(channels) == 0 {
		i := slices.IndexFunc(s.under, func(Send) bool { return true })
		for i >= 0 && i < len(s.under) && s.held[fmt.Sprintf("%d->%d", s.from[i], s.under[i].To)] {
			i++
		}
		if i < 0 || i == len(s.under) {
			return nil
		}
		s.deliver(i)
	}
	return nil
}

func (s *scene) tick(word string) error {
	d, err := time.ParseDuration(word)
	if err != nil {
		return err
	}
	s.now += d
	for _, r := range s.ranks {
		if !r.m.Watching() {
			continue
		}
		if !r.waiting {
			s.look(r)
		}
		s.step(r, Tick{Now: s.now})
	}
	return nil
}

// check compares the state of all programs with what a cut must be.
func (s *scene) check() {
	bad := 0
	complain := func(format string, args ...any) {
		bad++
		s.printf("inconsistent: "+format, args...)
	}
	for _, r := range s.ranks {
		if !r.waiting || r.cut != s.ranks[0].cut || r.cut == 0 {
			complain("rank %d is not at the cut", r.id)
		}
		for name, members := range s.comms {
			if slices.Contains(members, r.id) && r.entered[name] != s.ranks[members[0]].entered[name] {
				complain("%s: rank %d entered %d, rank %d %d", name, r.id, r.entered[name], members[0],
					s.ranks[members[0]].entered[name])
			}
		}
		for _, p := range s.ranks {
			if n := r.sent[p.id] - p.got[r.id]; n > 0 {
				s.printf("in flight %d->%d: %d, for the mailbox", r.id, p.id, n)
			}
		}
	}
	if bad == 0 {
		s.printf("consistent: yes")
	}
}
