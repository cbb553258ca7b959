package mpiwrap

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/ordered"
)

// Wildcards and special values of the calls.
const (
	AnySource = driver.AnySource // receive from whoever sends
	AnyTag    = driver.AnyTag    // receive whatever the tag
	ProcNull  = driver.ProcNull  // a peer that is not there: sends vanish, receives are empty
	Undefined = driver.Undefined // color of a rank that joins no communicator
)

// Comm is a communicator: an ordered set of ranks with its own message space.
//
// Its name says where it comes from and is the same in every run that creates
// communicators in the same order: "world", "world.1" for the first child of the
// world, "world.2[3]" for the one of several made by the second creation whose
// leader (rank 0) is world rank 3, "world.g7.1[0,2]" for the first that world ranks 0
// and 2 made by CreateGroup with tag 7.
//
// # After a restart
//
// A restarted program makes its communicators again, in the same order on each
// parent, by the same calls, at the same places of the program: those made before
// Restore, and those made later that lived at the checkpoint. Communicators that were freed
// before the checkpoint are not made again. Messages that the checkpoint holds for a
// communicator are given to none that is made elsewhere: where a call, its arguments,
// its members or its place do not fit the one whose turn it is, and messages wait for
// that one, creation (or Restore) fails on all ranks with ErrMismatch and names
// both places. The place is the function and line that called this package; where the
// executable has been built anew, it is the function alone. One for which nothing waits
// may be made elsewhere, and counts as new. Communicators that are made
// at one place, as in a loop, are told apart by their order.
type Comm struct {
	st      *state
	h       driver.Handle
	rank    int
	size    int
	members []int // world ranks
	name    string
	how     creation
	index   uint32 // in st.table

	balance  int64 // see inFlight
	children int   // creations begun on this communicator
	windows  int   // allocated on it so far
	entered  ordered.Uint64
	box      mailbox
	groups   map[string]int // creations by groups
	turns    int            // creations on it in this run, groups aside
	uneven   [][]uint64     // see crossed
	shadow   *Comm          // see side
	freed    bool
	private  bool
}

// Rank returns the caller's rank in c.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks of c.
func (c *Comm) Size() int { return c.size }

// Name returns the communicator's name; see Comm.
func (c *Comm) Name() string { return c.name }

// WorldRank returns the world rank of a rank of c. It panics when rank is not
// one of c.
func (c *Comm) WorldRank(rank int) int { return c.members[rank] }

// Members returns the world ranks of c in order. The slice is shared and must
// not be modified.
func (c *Comm) Members() []int { return c.members }

// Library returns the version text of the message layer under c. For simulated
// ranks it says so.
func (c *Comm) Library() string { return c.st.info.Library }

// MaxTag returns the largest tag the library accepts.
func (c *Comm) MaxTag() int { return c.st.info.MaxTag }

// Abort ends all ranks of the job at once. It is the one call here that does not
// return an error.
func (c *Comm) Abort(code int) { c.st.drv.Abort(code) }

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

	site *callSite // until Creator and Path are filled in
}

// Dup makes a communicator of the same ranks with its own message space. It is
// collective over c.
func (c *Comm) Dup() (*Comm, error) {
	return c.create(creation{Op: opDup.String(), site: noteSite()}, opDup, func() (driver.Handle, error) {
		return c.st.drv.Dup(c.h)
	})
}

// Split makes one communicator for each color; its ranks are ordered by key, then
// by rank in c. A rank with color Undefined gets nil. Other colors must not be
// negative. It is collective over c.
func (c *Comm) Split(color, key int) (*Comm, error) {
	if color < 0 && color != Undefined {
		return nil, c.fail("Split", NoPeer, NoTag, ErrUnsupported, fmt.Sprintf("color %d is negative", color))
	}
	how := creation{Op: opSplit.String(), Color: color, Key: key, site: noteSite()}
	return c.create(how, opSplit, func() (driver.Handle, error) {
		return c.st.drv.Split(c.h, color, key)
	})
}

// SplitNode makes one communicator for each set of ranks that share memory,
// usually a node. It is collective over c.
func (c *Comm) SplitNode(key int) (*Comm, error) {
	how := creation{Op: opSplitNode.String(), Key: key, site: noteSite()}
	return c.create(how, opSplitNode, func() (driver.Handle, error) {
		return c.st.drv.SplitNode(c.h, key)
	})
}

// Create makes a communicator of the listed ranks of c, in that order. It is
// collective over c; a rank that is not listed gets nil. All callers give the
// same list, or disjoint ones.
func (c *Comm) Create(ranks []int) (*Comm, error) {
	if err := c.usable("Create"); err != nil {
		return nil, err
	}
	list, err := c.rankList("Create", ranks)
	if err != nil {
		return nil, err
	}
	how := creation{Op: opCreate.String(), Ranks: list, site: noteSite()}
	return c.create(how, opCreate, func() (driver.Handle, error) {
		return c.st.drv.Create(c.h, list)
	})
}

func (c *Comm) rankList(call string, ranks []int) ([]int32, error) {
	list := make([]int32, len(ranks))
	seen := map[int]bool{}
	for i, r := range ranks {
		if r < 0 || r >= c.size || seen[r] {
			return nil, c.fail(call, r, NoTag, ErrRank, fmt.Sprintf("rank list of %d entries, size %d", len(ranks),
				c.size))
		}
		seen[r] = true
		list[i] = int32(r)
	}
	return list, nil
}

// Free releases c. Messages that were sent on it and not received are lost; the
// ranks take them off the network together, since nobody could do it later. It is
// collective over c and waits for all its ranks. The world cannot be freed.
func (c *Comm) Free() error {
	if err := c.usable("Free"); err != nil {
		return err
	}
	if c.name == "world" {
		return c.fail("Free", NoPeer, NoTag, ErrUnsupported, "the world lives until Finalize")
	}
	a, err := c.enter(opFree)
	if err != nil {
		return err
	}
	defer a.leave()
	if err := c.empty(); err != nil {
		return err
	}
	c.freed = true
	if err := c.release(); err != nil {
		return c.wrap("Free", NoPeer, NoTag, err)
	}
	c.st.forget(c)
	if err := c.st.drv.FreeComm(c.h); err != nil {
		return c.wrap("Free", NoPeer, NoTag, err)
	}
	return nil
}

// usable refuses a freed communicator and a finalised world.
func (c *Comm) usable(call string) error {
	if c == nil {
		return &Error{Call: call, Peer: NoPeer, Tag: NoTag, Err: ErrFreed, Text: "the communicator is nil"}
	}
	if c.freed {
		return c.fail(call, NoPeer, NoTag, ErrFreed, "")
	}
	if c.st.finalized.Load() {
		return c.fail(call, NoPeer, NoTag, ErrFinalized, "")
	}
	return nil
}

// childName names the communicator that the n-th creation on c gives the caller.
func (c *Comm) childName(how *creation, n int, members []int) string {
	switch how.Op {
	case opDup.String():
		return fmt.Sprintf("%s.%d", c.name, n)
	case opCreateGroup.String():
		return fmt.Sprintf("%s.g%d.%d[%s]", c.name, how.Tag, n, groupText(members))
	}
	return fmt.Sprintf("%s.%d[%d]", c.name, n, members[0])
}
