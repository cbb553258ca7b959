package cut

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/test/scenario"
)

// scene is the world of a scenario: machines, the state of the program that the
// commands set, and the control messages under way. Commands, r and p being
// ranks:
//
//	ranks N [fanout=K] [span=N] [timeout=D]   begin, world of N ranks
//	comm NAME r... [of=N]   a communicator besides world, or more members of it; with N
//	                        members in the end
//	forget COMM             a communicator that all members have freed is no longer listed
//	points r N              r has passed N Points
//	entered r COMM N        r has entered N collectives
//	request r [stop]        ask for a checkpoint at r
//	point r                 the main thread comes to its next Point
//	finish r                the main thread closes the checkpointer
//	send r p                r sends a message to p
//	get r p                 r receives one from p
//	recv r p...             r blocks in a receive from p, or any of several; "any:COMM" for AnySource
//	poll r p...             r polls for it round and round
//	wait r p...             the same call now waits for this
//	block r                 r blocks in a send or collective
//	coll r COMM             r blocks in a collective
//	start r COMM            r starts a non-blocking collective
//	leave r                 r leaves its call
//	tick D                  time passes; every watching machine looks and ticks
//	deliver [r->p]          all control messages, or the next one from r to p
//	hold r->p, pass r->p    messages from r to p wait, no longer wait
//	copy r->p, swap r->p    the next waiting message comes twice, the first two change places
//	lose r->p               the next waiting message is lost
//	captured r..., done     the main thread has captured; the coordinator's epoch is over
//	status                  where the machines stand
//	quiet                   what was printed since the last ---- is of no interest
//	check                   whether the cut is consistent
type scene struct {
	out   strings.Builder
	now   time.Duration
	ranks []*actor
	comms map[string][]int
	sizes map[string]int // of those that have yet to get members
	under []Send         // control messages under way, oldest first
	from  []int          // their senders
	held  map[string]bool
}

// actor is a rank's program.
type actor struct {
	id       int
	m        *Machine
	points   uint64
	entered  map[string]uint64
	sent     map[int]uint64
	got      map[int]uint64
	call     uint64
	block    *Block
	waits    []string // of block, as the command named them
	waiting  bool
	finished bool
	armed    bool
	cut      Epoch
}

func (s *scene) Take() string {
	defer s.out.Reset()
	return s.out.String()
}

func (s *scene) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *scene) Run(words []string) error {
	if len(words) == 0 {
		return nil
	}
	verb, args := words[0], words[1:]
	if verb == "ranks" {
		return s.begin(args)
	}
	if s.ranks == nil {
		return errors.New("no ranks yet")
	}
	if f := worldVerbs[verb]; f != nil {
		return f(s, args)
	}
	f := rankVerbs[verb]
	if f == nil || len(args) == 0 {
		return errors.New("no such command")
	}
	r, err := s.actor(args[0])
	if err != nil {
		return err
	}
	return f(s, r, args[1:])
}

func (s *scene) actor(word string) (*actor, error) {
	i, err := strconv.Atoi(word)
	if err != nil || i < 0 || i >= len(s.ranks) {
		return nil, fmt.Errorf("%q is no rank", word)
	}
	return s.ranks[i], nil
}

func (s *scene) begin(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	fanout, cfg := 2, Config{Size: n}
	for _, a := range args[1:] {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "fanout":
			fanout, err = strconv.Atoi(value)
		case "span":
			cfg.HintSpan, err = strconv.ParseUint(value, 10, 64)
		case "timeout":
			cfg.Timeout, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("no option %q", key)
		}
		if err != nil {
			return err
		}
	}
	*s = scene{comms: map[string][]int{}, sizes: map[string]int{}, held: map[string]bool{}}
	for i := range n {
		cfg.Rank = i
		cfg.Parent, cfg.Children = Place(i, n, fanout)
		m, err := New(cfg)
		if err != nil {
			return err
		}
		s.comms["world"] = append(s.comms["world"], i)
		s.ranks = append(s.ranks, &actor{id: i, m: m, entered: map[string]uint64{}, sent: map[int]uint64{},
			got: map[int]uint64{}})
	}
	return nil
}

func (s *scene) colls(r *actor) []Coll {
	var out []Coll
	for name, members := range s.comms {
		if slices.Contains(members, r.id) {
			out = append(out, Coll{Comm: name, Leader: members[0] == r.id, Size: max(s.sizes[name], len(members)),
				Entered: r.entered[name]})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Comm < out[j].Comm })
	return out
}

func (s *scene) look(r *actor) {
	if r.block != nil {
		r.block.Waits = nil
		for _, w := range r.waits {
			r.block.Waits = append(r.block.Waits, s.wait(r, w))
		}
	}
	s.step(r, Sampled{Now: s.now, Points: r.points, Colls: s.colls(r), Block: r.block})
}

func (s *scene) wait(r *actor, word string) Wait {
	comm, any := strings.CutPrefix(word, "any:")
	if !any {
		p, _ := strconv.Atoi(word)
		return Wait{Source: p, Had: r.got[p]}
	}
	w := Wait{Source: AnySource, Comm: comm}
	for _, p := range s.comms[comm] {
		w.Had += r.got[p]
	}
	return w
}

// step feeds a machine and notes what it does about it.
func (s *scene) step(r *actor, ev Event) {
	for _, a := range r.m.Step(ev) {
		switch a := a.(type) {
		case Send:
			s.printf("%d->%d %v", r.id, a.To, describe(a.Msg))
			s.under, s.from = append(s.under, a), append(s.from, r.id)
		case Look:
			s.look(r)
		case Arm:
			r.armed = true
			s.printf("rank %d: arm epoch=%d", r.id, a.Epoch)
		case Disarm:
			r.armed = false
			s.printf("rank %d: disarm", r.id)
		case Release:
			r.waiting = false
			s.printf("rank %d: release", r.id)
		case Cut:
			r.cut = a.Epoch
			s.printf("rank %d: cut epoch=%d%s", r.id, a.Epoch, when(a.Stop, " stop"))
		case GaveUp:
			s.printf("rank %d: gave up epoch=%d parked=%t%s", r.id, a.Epoch, a.Parked, when(a.Stop, " stop"))
		}
	}
}

func when(yes bool, text string) string {
	if yes {
		return text
	}
	return ""
}

// describe writes the fields of a message that are in use.
func describe(m Message) string {
	var b strings.Builder
	b.WriteString(m.Kind.String())
	field := func(name string, v uint64) {
		if v != 0 {
			fmt.Fprintf(&b, " %s=%d", name, v)
		}
	}
	switch m.Kind {
	case kindReady, kindVote:
		fmt.Fprintf(&b, " yes=%t", m.Yes)
	case kindAsk, kindCut:
		b.WriteString(when(m.Yes, " stop"))
	case kindNeed, kindElect, kindPolled, kindElected:
		fmt.Fprintf(&b, " rank=%d", m.Rank)
	}
	b.WriteString(when(m.Any, " elected"))
	field("round", m.Round)
	field("had", m.Had)
	if m.Min != ^uint64(0) {
		field("min", m.Min)
	}
	field("max", m.Max)
	if m.Kind != kindVote {
		field("sum", m.Sum)
	} else if m.Sum != 0 {
		b.WriteString(" sum≠0")
	}
	if m.Comm != "" {
		b.WriteString(" " + m.Comm)
	}
	for _, c := range m.Colls {
		fmt.Fprintf(&b, " %s:%d/%d:%d..%d", c.Comm, c.Members, c.Size, c.Min, c.Max)
	}
	for _, c := range m.Found {
		fmt.Fprintf(&b, " rank%d@%d", c.Rank, c.Points)
	}
	return b.String()
}

// TestScenarios plays testdata/*.txt: what the machines do about the commands that
// scene_test.go lists.
func TestScenarios(t *testing.T) {
	scenario.Play(t, 25, "nothing\n", func() scenario.Scene { return &scene{} })
}
