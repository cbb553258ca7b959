package mpiwrap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

// Wildcards and special values of the calls.
const (
	AnySource = driver.AnySource // receive from whoever sends
	AnyTag    = driver.AnyTag    // receive whatever the tag
	ProcNull  = driver.ProcNull  // no peer: sends are discarded, receives are empty
	Undefined = driver.Undefined // color of a rank that joins no communicator
)

// Comm is a communicator: an ordered set of ranks with its own message space.
//
// Its name shows its origin and is the same in every run that creates communicators in the same order. "world.1" is the
// first child of "world". "world.2[3]" was made by the second creation, and its leader (rank 0) is world rank 3.
// "world.g7.1[0,2]" is the first that world ranks 0 and 2 made by CreateGroup with tag 7.
//
// # After a restart
//
// A restarted program makes its communicators again, in the same order on each parent, by the same calls, at the same
// places in the program. This holds for communicators made before Restore, and for later ones that existed at the
// checkpoint. Communicators that were freed before the checkpoint are not made again, unless existing ones were made
// from them. If messages wait for a communicator, the new one must agree with it in call, arguments, members and place.
// Otherwise creation (or Restore) fails on all ranks with ErrMismatch and names both places. The place is the function
// and line that called this package; if the executable was rebuilt, only the function counts. A communicator for which
// no message waits may be made elsewhere, and counts as new. Communicators made at one place, as in a loop, are
// identified by their order.
type Comm struct {
	st   *state
	ch   request.Channel
	rank int
	size int
	how  creation
	from *Comm // it was made on; nil for the world

	children int // creations begun on this communicator
	windows  int // allocated on it so far
	entered  call.Published
	groups   map[string]int // creations by groups
	turns    int            // creations on it in this run, groups aside
	uneven   [][]uint64     // see crossed
	shadow   *Comm          // see side
}

// Rank returns the caller's rank in c.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks of c.
func (c *Comm) Size() int { return c.size }

// Name returns the communicator's name; see Comm.
func (c *Comm) Name() string { return c.ch.Name }

// WorldRank returns the world rank of a rank of c. It panics when rank is not
// one of c.
func (c *Comm) WorldRank(rank int) int { return c.ch.Members[rank] }

// Members returns the world ranks of c in order. The slice is shared and must
// not be modified.
func (c *Comm) Members() []int { return c.ch.Members }

// Library returns the version text of the message layer under c. For simulated
// ranks it says so.
func (c *Comm) Library() string { return c.st.Info.Library }

// MaxTag returns the largest tag the library accepts.
func (c *Comm) MaxTag() int { return c.st.Info.MaxTag }

// Abort ends all ranks of the job at once, with the given exit code. It is local: one rank is enough.
func (c *Comm) Abort(code int) { c.st.Driver.Abort(code) }

// creation says how a communicator was made, for the check at a restart.
type creation struct {
	Parent  string
	Op      string
	Color   int
	Key     int
	Ranks   []int32 `json:",omitempty"`
	Tag     int     `json:",omitempty"`
	Creator string  // file:line of the program
	// Path is the program's functions that led to the call, innermost first, each with
	// its line: "main.(*grid).connect:42".
	Path []string `json:",omitempty"`
	// Turn is the place in the order of creations on the parent, groups aside, in the run
	// that made it. A record that lacks it is in the order of the children's numbers.
	Turn int `json:",omitempty"`
}

// Dup makes a communicator of the same ranks with its own message space. It is collective over c. Cost of this and of
// the other calls that make communicators: a few small collectives over c.
func (c *Comm) Dup() (*Comm, error) {
	return c.create(call.Dup, creation{}, func() (driver.Handle, error) { return c.st.Driver.Dup(c.ch.Handle) })
}

// Split makes one communicator for each color; its ranks are ordered by key, then
// by rank in c. A rank with color Undefined gets nil. Other colors must not be
// negative. It is collective over c.
func (c *Comm) Split(color, key int) (*Comm, error) {
	if color < 0 && color != Undefined {
		return nil, c.ch.Fail("Split", NoPeer, NoTag, ErrUnsupported, fmt.Sprintf("color %d is negative", color))
	}
	return c.create(call.Split, creation{Color: color, Key: key}, func() (driver.Handle, error) {
		return c.st.Driver.Split(c.ch.Handle, color, key)
	})
}

// SplitNode makes one communicator for each set of ranks that share memory,
// usually a node. It is collective over c.
func (c *Comm) SplitNode(key int) (*Comm, error) {
	return c.create(call.SplitNode, creation{Key: key}, func() (driver.Handle, error) {
		return c.st.Driver.SplitNode(c.ch.Handle, key)
	})
}

// Create makes a communicator of the listed ranks of c, in that order. It is
// collective over c; a rank that is not listed gets nil. All callers give the
// same list, or disjoint ones.
func (c *Comm) Create(ranks []int) (*Comm, error) {
	if err := c.channel().Usable("Create"); err != nil {
		return nil, err
	}
	list, err := c.rankList("Create", ranks)
	if err != nil {
		return nil, err
	}
	return c.create(call.Create, creation{Ranks: list}, func() (driver.Handle, error) {
		return c.st.Driver.Create(c.ch.Handle, list)
	})
}

func (c *Comm) rankList(name string, ranks []int) ([]int32, error) {
	list := make([]int32, len(ranks))
	seen := map[int]bool{}
	for i, r := range ranks {
		if r < 0 || r >= c.size || seen[r] {
			return nil, c.ch.Fail(name, r, NoTag, ErrRank, fmt.Sprintf("a list of %d ranks holds it twice, or it is "+
				"outside a communicator of size %d", len(ranks),
				c.size))
		}
		seen[r] = true
		list[i] = int32(r)
	}
	return list, nil
}

// Free releases c. Messages not yet received on it are lost: the ranks drain them
// together. It is collective over c and waits for all its ranks. The world cannot
// be freed.
func (c *Comm) Free() error {
	if err := c.channel().Usable("Free"); err != nil {
		return err
	}
	if c.ch.Name == "world" {
		return c.ch.Fail("Free", NoPeer, NoTag, ErrUnsupported, "the world cannot be freed; Finalize frees it")
	}
	a, err := c.enter(call.Free)
	if err != nil {
		return err
	}
	defer a.Leave()
	if err := c.empty(); err != nil {
		return err
	}
	c.ch.Freed = true
	if err := c.release(); err != nil {
		return c.ch.Wrap("Free", NoPeer, NoTag, err)
	}
	c.st.forget(c)
	return c.ch.Wrap("Free", NoPeer, NoTag, c.st.Driver.FreeComm(c.ch.Handle))
}

// channel returns the channel of c's messages; nil for no communicator, which its calls refuse.
func (c *Comm) channel() *request.Channel {
	if c == nil {
		return nil
	}
	return &c.ch
}

// childName names the communicator that the n-th creation on c gives the caller.
func (c *Comm) childName(how *creation, n int, members []int) string {
	switch how.Op {
	case call.Dup.String():
		return fmt.Sprintf("%s.%d", c.ch.Name, n)
	case call.CreateGroup.String():
		return fmt.Sprintf("%s.g%d.%d[%s]", c.ch.Name, how.Tag, n, groupText(members))
	}
	return fmt.Sprintf("%s.%d[%d]", c.ch.Name, n, members[0])
}

// CreateGroup makes a communicator of the listed ranks of c, in that order. Only they call it, all with the same list
// and tag; ranks that are not listed do not take part. Concurrent creations need different tags. Collective over the
// listed ranks.
func (c *Comm) CreateGroup(ranks []int, tag int) (*Comm, error) {
	if err := c.channel().Usable("CreateGroup"); err != nil {
		return nil, err
	}
	list, err := c.rankList("CreateGroup", ranks)
	if err != nil {
		return nil, err
	}
	if tag < 0 || tag > c.st.Info.MaxTag {
		return nil, c.ch.Fail("CreateGroup", NoPeer, tag, ErrTag, "")
	}
	if !slices.Contains(ranks, c.rank) {
		return nil, c.ch.Fail("CreateGroup", c.rank, tag, ErrRank, "the calling rank is not in its list")
	}
	a, err := c.ch.Block(call.CreateGroup, NoPeer, tag)
	if err != nil {
		return nil, err
	}
	defer a.Leave()
	a.ForGroup(c.others(ranks))
	defer a.ForGroup(nil)
	how := creation{Ranks: list, Tag: tag}
	how.locate(c, call.CreateGroup)
	n, before := c.groupNumber(&how)
	h, err := c.st.Driver.CreateGroup(c.st.private.ch.Handle, c.worldRanks(list), tag)
	if err != nil {
		return nil, c.ch.Wrap("CreateGroup", NoPeer, tag, err)
	}
	return c.adopt(how, h, n, func(child *Comm) error {
		if before == nil {
			return nil
		}
		child.ch.Name = before.Name // that of version 1 says less
		return c.st.restored.misplaced(child, before)
	})
}

// worldRanks translates ranks of c. Groups are made out of the private communicator: Open MPI then sends messages with
// the program's tag on the given communicator, where a rank that drains, or receives any tag, would take them.
func (c *Comm) worldRanks(list []int32) []int32 {
	out := make([]int32, len(list))
	for i, r := range list {
		out[i] = int32(c.ch.Members[r])
	}
	return out
}

// groupText tells groups apart whatever their members: by a list, or for many by the
// first, their number and a hash of the list.
func groupText(members []int) string {
	if len(members) > 8 {
		return fmt.Sprintf("%d,+%d,%016x", members[0], len(members)-1, hashText(fmt.Sprint(members)))
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(members), "[]"), " ", ",")
}

// others returns the world ranks of a list without the caller's.
func (c *Comm) others(ranks []int) []int {
	out := make([]int, 0, len(ranks))
	for _, r := range ranks {
		if r != c.rank {
			out = append(out, c.ch.Members[r])
		}
	}
	return out
}

// groupKey tells creations by different groups, or under different tags, apart:
// their members count them separately.
func (how *creation) groupKey() string { return fmt.Sprint(how.Tag, how.Ranks) }

// Nodes splits c by shared memory: intra holds the caller's node, inter one rank
// of each node, the lowest, and is nil on the others. It is collective over c.
func (c *Comm) Nodes() (intra, inter *Comm, err error) {
	if intra, err = c.SplitNode(c.rank); err != nil {
		return nil, nil, err
	}
	color := Undefined
	if intra.rank == 0 {
		color = 0
	}
	inter, err = c.Split(color, c.rank)
	return intra, inter, err
}

// side returns a communicator of the same ranks for messages that belong to one
// call, reductions in Go and neighbourhood exchanges, which leave nothing in
// flight. Every rank comes here in the same collective, so making it may wait for
// the others.
func (c *Comm) side() (*Comm, error) {
	if c.shadow == nil {
		h, err := c.st.Driver.Dup(c.ch.Handle)
		if err != nil {
			return nil, err
		}
		c.shadow = &Comm{st: c.st, ch: c.ch.Side(h), rank: c.rank, size: c.size}
	}
	return c.shadow, nil
}

// release frees the communicators of side.
func (c *Comm) release() error {
	if c.shadow == nil {
		return nil
	}
	h := c.shadow.ch.Handle
	c.shadow = nil
	return c.st.Driver.FreeComm(h)
}
