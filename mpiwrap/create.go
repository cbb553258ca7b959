package mpiwrap

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"runtime"
	"strings"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// create runs one collective creation on c: all ranks agree on what is made,
// the driver makes it, the child gets its name. make returns 0 to a rank that
// belongs to no new communicator.
func (c *Comm) create(how creation, op opCode, build func() (driver.Handle, error)) (*Comm, error) {
	if err := c.usable(how.Op); err != nil {
		return nil, err
	}
	a, err := c.enter(op)
	if err != nil {
		return nil, err
	}
	defer a.leave()
	how.Parent = c.name
	n, err := c.agree(how)
	if err != nil {
		return nil, err
	}
	c.children = max(c.children, n)
	c.st.forgetGone(c)
	h, err := build()
	if err != nil {
		return nil, c.wrap(how.Op, NoPeer, NoTag, err)
	}
	if h == 0 {
		return nil, nil
	}
	return c.adopt(how, h, n)
}

// adopt makes a Comm of a new handle. It is collective over the new
// communicator.
func (c *Comm) adopt(how creation, h driver.Handle, n int) (*Comm, error) {
	s := c.st
	child := &Comm{st: s, h: h, how: how, private: c.private}
	child.rank, child.size = s.drv.CommRank(h)
	in := binary.LittleEndian.AppendUint32(nil, uint32(s.world.rank))
	out := make([]byte, 4*child.size)
	err := s.drv.Collective(driver.Coll{Kind: driver.Allgather, Count: 4, Send: in, Recv: out, Comm: h})
	if err != nil {
		return nil, c.wrap(how.Op, NoPeer, NoTag, err)
	}
	child.members = make([]int, child.size)
	for i := range child.members {
		child.members[i] = int(binary.LittleEndian.Uint32(out[4*i:]))
	}
	child.name = c.childName(how, n, child.members[0])
	if s.restored != nil {
		if err := s.restored.matches(child); err != nil {
			return nil, err
		}
	}
	s.register(child)
	s.deliverRestored(child)
	return child, nil
}

// intent is what one rank brings to a creation: its call, the number of
// children so far, the child that its record has next and that child's call.
type intent struct {
	call, children, claims, recorded uint64
}

const intentBytes = 32

func (v intent) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, v.call)
	b = binary.LittleEndian.AppendUint64(b, v.children)
	b = binary.LittleEndian.AppendUint64(b, v.claims)
	return binary.LittleEndian.AppendUint64(b, v.recorded)
}

func decodeIntent(b []byte) intent {
	u := binary.LittleEndian.Uint64
	return intent{u(b), u(b[8:]), u(b[16:]), u(b[24:])}
}

// agree compares over c what each rank is about to make and returns the number
// of the child. Ranks that disagree, and one that differs from the run before the
// restart, make all of them fail alike.
func (c *Comm) agree(how creation) (int, error) {
	next := c.nextClaim()
	mine := intent{call: opHash(how.Op), children: uint64(c.childrenSoFar()), claims: uint64(next.number)}
	if next.rec != nil && next.rec.How.print() != how.print() {
		mine.recorded = 1
	}
	in, out := mine.encode(), make([]byte, intentBytes*c.size)
	err := c.st.drv.Collective(driver.Coll{Kind: driver.Allgather, Count: intentBytes, Send: in, Recv: out, Comm: c.h})
	if err != nil {
		return 0, c.wrap(how.Op, NoPeer, NoTag, err)
	}
	all := make([]intent, c.size)
	lowest := uint64(0)
	for i := range all {
		all[i] = decodeIntent(out[i*intentBytes:])
		if n := all[i].claims; n > 0 && (lowest == 0 || n < lowest) {
			lowest = n
		}
	}
	for _, v := range all {
		if v.call != mine.call || v.children != mine.children || lowest > 0 && v.claims == lowest && v.recorded != 0 {
			return 0, c.explain(how, next)
		}
	}
	if lowest > 0 {
		return int(lowest), nil
	}
	return c.childrenSoFar() + 1, nil
}

func opHash(op string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(op))
	return h.Sum64()
}

// empty receives what is still in flight on a communicator about to be freed: at
// a later drain its messages would be missed for ever.
func (c *Comm) empty() error {
	for {
		mine, all := []int64{c.balance}, []int64{0}
		err := c.st.drv.Collective(driver.Coll{Kind: driver.Allreduce, Type: driver.Int64, Op: driver.Sum,
			Count: 1, Send: bytesOf(mine), Recv: bytesOf(all), Comm: c.h})
		if err != nil {
			return c.wrap("Free", NoPeer, NoTag, err)
		}
		if all[0] <= 0 {
			return nil
		}
		if _, err := c.st.endpoint.progressAll(); err != nil {
			return err
		}
		if _, err := c.fetch(); err != nil {
			return err
		}
	}
}

const explainBytes = 256

// explain tells every rank what each of them was about to make.
func (c *Comm) explain(how creation, next claim) error {
	text := fmt.Sprintf("%s at %s (child %d)", how.Op, how.Creator, c.childrenSoFar()+1)
	if next.rec != nil {
		text = fmt.Sprintf("%s at %s, where before the restart %s was made by %s",
			how.Op, how.Creator, next.rec.Name, next.rec.How.by())
	}
	in := make([]byte, explainBytes)
	copy(in, text)
	out := make([]byte, explainBytes*c.size)
	err := c.st.drv.Collective(driver.Coll{Kind: driver.Allgather, Count: explainBytes, Send: in, Recv: out, Comm: c.h})
	if err != nil {
		return c.wrap(how.Op, NoPeer, NoTag, err)
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
	return c.fail(how.Op, NoPeer, NoTag, ErrMismatch,
		fmt.Sprintf("child of %s: %s", c.name, strings.Join(parts, "; ")))
}

// caller returns file:line of the first frame outside this package.
func caller() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "/mpiwrap.") || strings.HasSuffix(f.File, "_test.go") {
			return fmt.Sprintf("%s:%d", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
		}
		if !more {
			return "unknown"
		}
	}
}
