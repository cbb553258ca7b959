package mpiwrap

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

// create runs one collective creation on c: all ranks agree on the child, the driver makes it, the child gets its name.
// make returns 0 to a rank that belongs to no new communicator.
func (c *Comm) create(op call.Op, how creation, build func() (driver.Handle, error)) (*Comm, error) {
	if err := c.channel().Usable(op.String()); err != nil {
		return nil, err
	}
	a, err := c.enter(op)
	if err != nil {
		return nil, err
	}
	defer a.Leave()
	how.locate(c, op)
	n, err := c.agree(how)
	if err != nil {
		return nil, err
	}
	c.children = max(c.children, n)
	c.turns++
	how.Turn = c.turns
	c.st.mu.Lock() // all ranks of c have come to a creation after those of the children that are freed
	c.st.freed = slices.DeleteFunc(c.st.freed, func(f endpoint.Collective) bool {
		return strings.HasPrefix(f.Comm, c.ch.Name+".")
	})
	c.st.mu.Unlock()
	h, err := build()
	if err != nil {
		return nil, c.ch.Wrap(how.Op, NoPeer, NoTag, err)
	}
	if h == 0 {
		return nil, nil
	}
	return c.adopt(how, h, n, nil)
}

// adopt makes a Comm of a new handle. It is collective over the new
// communicator, and fails on all of its ranks if refuse has a reason on one.
func (c *Comm) adopt(how creation, h driver.Handle, n int, refuse func(child *Comm) error) (*Comm, error) {
	s := c.st
	child := &Comm{st: s, ch: request.Channel{Handle: h, Private: c.ch.Private}, how: how, from: c}
	child.rank, child.size = s.Driver.CommRank(h)
	in := binary.LittleEndian.AppendUint32(nil, uint32(s.world.rank))
	out := make([]byte, 4*child.size)
	err := s.Driver.Collective(driver.Coll{Kind: driver.Allgather, Count: 4, Send: in, Recv: out, Comm: h})
	if err != nil {
		return nil, c.ch.Wrap(how.Op, NoPeer, NoTag, err)
	}
	child.ch.Members = make([]int, child.size)
	for i := range child.ch.Members {
		child.ch.Members[i] = int(binary.LittleEndian.Uint32(out[4*i:]))
	}
	child.ch.Name = c.childName(&how, n, child.ch.Members)
	if refuse != nil {
		s.Lock()
		reason := refuse(child)
		s.Unlock()
		if err := child.failAlike(reason); err != nil {
			return nil, err
		}
	}
	s.Lock()
	defer s.Unlock()
	if s.restored != nil {
		if err := s.restored.matches(child); err != nil {
			return nil, err
		}
	}
	s.register(child)
	s.deliverRestored(child)
	return child, nil
}

// intent is one rank's part of a creation: its call, the number of children so far, the key of the child that its
// record has next, how this call fits that child, and the place of the call.
type intent struct {
	Call, Children, Claims, Fit, Place uint64
}

// Bits of intent.Fit.
const (
	otherCall  = 1 << iota // the child was made by another call, or with other arguments
	otherPlace             // the child was made at another place
	mailWaits              // the record has messages for the child
)

// agree compares the ranks' intents over c and returns the number of the child. Ranks that disagree, that make their
// communicators in different orders, or one that differs from the run before the restart, make all of them fail alike.
func (c *Comm) agree(how creation) (int, error) {
	next := c.nextClaim(&how)
	mine := intent{Call: hashText(how.Op), Children: uint64(c.childrenSoFar()), Claims: next.key(),
		Place: hashText(how.place())}
	if next.rec != nil {
		c.st.Lock()
		mine.Fit = c.st.restored.fit(next.rec, &how)
		c.st.Unlock()
	}
	all := make([]intent, c.size)
	in, err := binary.Append(nil, binary.LittleEndian, mine)
	out := make([]byte, len(in)*c.size)
	if err == nil {
		err = c.allgather(in, out)
	}
	if err == nil {
		_, err = binary.Decode(out, binary.LittleEndian, all)
	}
	if err != nil {
		return 0, c.ch.Wrap(how.Op, NoPeer, NoTag, err)
	}
	lowest := uint64(0)
	for _, v := range all {
		if n := v.Claims; n > 0 && (lowest == 0 || n < lowest) {
			lowest = n
		}
	}
	fit := uint64(0)
	for _, v := range all {
		if v.Call != mine.Call || v.Children != mine.Children {
			return 0, c.explain(how, next)
		}
		if lowest > 0 && v.Claims == lowest {
			fit |= v.Fit
		}
	}
	if fit&otherCall != 0 || fit&otherPlace != 0 && fit&mailWaits != 0 || c.crossed(all) {
		return 0, c.explain(how, next)
	}
	if lowest > 0 {
		return int(uint32(lowest)), nil
	}
	return c.childrenSoFar() + 1, nil
}

func hashText(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

// crossed reports whether two ranks have made two communicators of c in different
// orders: each was, at an earlier creation, where the other is now. Left alone, their
// messages would wait for each other for ever. All ranks come to the same answer.
func (c *Comm) crossed(all []intent) bool {
	row := make([]uint64, len(all))
	even := true
	for i, v := range all {
		row[i] = v.Place
		even = even && v.Place == row[0]
	}
	if even {
		return false
	}
	for _, old := range c.uneven {
		seen := map[[2]uint64]bool{}
		for i := range row {
			seen[[2]uint64{old[i], row[i]}] = true
		}
		for k := range seen {
			if k[0] != k[1] && seen[[2]uint64{k[1], k[0]}] {
				return true
			}
		}
	}
	const most = 8
	if c.uneven = append(c.uneven, row); len(c.uneven) > most {
		c.uneven = c.uneven[1:]
	}
	return false
}

// failAlike makes all ranks of c fail if one has a reason.
func (c *Comm) failAlike(reason error) error {
	bad, all := []int64{0}, []int64{0}
	if reason != nil {
		bad[0] = int64(c.rank) + 1
	}
	err := c.st.Driver.Collective(driver.Coll{Kind: driver.Allreduce, Type: driver.Int64, Op: driver.Max,
		Count: 1, Send: bytesOf(bad), Recv: bytesOf(all), Comm: c.ch.Handle})
	switch {
	case err != nil:
		return c.ch.Wrap(c.how.Op, NoPeer, NoTag, err)
	case reason == nil && all[0] > 0:
		return c.ch.Fail(c.how.Op, int(all[0])-1, NoTag, ErrMismatch, "that rank refused; see its error")
	}
	return reason
}

// empty receives messages still in flight on a communicator about to be freed: at a later drain its messages would be
// missed for ever.
func (c *Comm) empty() error {
	for {
		mine, all := []int64{c.ch.InFlight()}, []int64{0}
		err := c.st.Driver.Collective(driver.Coll{Kind: driver.Allreduce, Type: driver.Int64, Op: driver.Sum,
			Count: 1, Send: bytesOf(mine), Recv: bytesOf(all), Comm: c.ch.Handle})
		if err != nil {
			return c.ch.Wrap("Free", NoPeer, NoTag, err)
		}
		if all[0] <= 0 {
			return nil
		}
		if _, err := c.st.Progress(c.st.channels); err != nil {
			return err
		}
		if _, err := c.ch.Fetch(c.st.channels); err != nil {
			return err
		}
	}
}

// allgather collects the in of all ranks in out.
func (c *Comm) allgather(in, out []byte) error {
	return c.st.Driver.Collective(driver.Coll{Kind: driver.Allgather, Count: len(in), Send: in, Recv: out,
		Comm: c.ch.Handle})
}

const explainBytes = 512

// explain tells every rank the intents of all.
func (c *Comm) explain(how creation, next claim) error {
	text := fmt.Sprintf("%s at %s (child %d)", how.Op, how.Creator, c.childrenSoFar()+1)
	if next.rec != nil {
		text = fmt.Sprintf("%s, but before the restart %s was made by %s",
			how.by(), next.rec.Name, next.rec.How.by())
		if c.st.restored.hasMail(next.rec.Name) {
			text += ", and messages wait for it"
		}
	}
	in := make([]byte, explainBytes)
	copy(in, text)
	out := make([]byte, explainBytes*c.size)
	err := c.allgather(in, out)
	if err != nil {
		return c.ch.Wrap(how.Op, NoPeer, NoTag, err)
	}
	var parts []string
	last := ""
	for i := range c.size {
		t := strings.TrimRight(string(out[i*explainBytes:(i+1)*explainBytes]), "\x00")
		if t != last {
			parts = append(parts, fmt.Sprintf("rank %d: %s", i, t))
		}
		last = t
	}
	return c.ch.Fail(how.Op, NoPeer, NoTag, ErrMismatch,
		fmt.Sprintf("communicator made from %s: %s; all ranks must make communicators in the same order, and after "+
			"a restart at the same places as before (see Comm)",
			c.ch.Name, strings.Join(parts, "; ")))
}
