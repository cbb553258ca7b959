package mpiwrap

import (
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

// CreateGroup makes a communicator of the listed ranks of c, in that order. Only
// they call it, all with the same list and tag; ranks that are not listed do not
// take part. Concurrent creations need different tags.
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
	if !contains(ranks, c.rank) {
		return nil, c.ch.Fail("CreateGroup", c.rank, tag, ErrRank, "the calling rank is not in its list")
	}
	a, err := c.ch.Block(call.CreateGroup, NoPeer, tag)
	if err != nil {
		return nil, err
	}
	defer a.Leave()
	a.ForGroup(c.others(ranks))
	defer a.ForGroup(nil)
	how := creation{Parent: c.ch.Name, Op: call.CreateGroup.String(), Ranks: list, Tag: tag, site: request.NoteSite()}
	how.locate()
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

// worldRanks translates ranks of c. Groups are made out of the private communicator: Open MPI
// sends what it needs for that as messages with the program's tag on the communicator that
// it is given, where a rank that drains, or receives any tag, would take them.
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

func contains(list []int, v int) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
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

// release frees what side made.
func (c *Comm) release() error {
	if c.shadow == nil {
		return nil
	}
	h := c.shadow.ch.Handle
	c.shadow = nil
	return c.st.Driver.FreeComm(h)
}
