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
	claimed, local := c.claim(how)
	if err := c.agree(how, local); err != nil {
		return nil, err
	}
	if claimed != nil {
		return claimed.comm, nil
	}
	c.children++
	h, err := build()
	if err != nil {
		return nil, c.wrap(how.Op, NoPeer, NoTag, err)
	}
	if h == 0 {
		return nil, nil
	}
	return c.adopt(how, h, c.children)
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
	s.register(child)
	s.deliverRestored(child)
	return child, nil
}

// agree compares over c what each rank is about to make. Ranks that disagree, or
// one that differs from the run before the restart, make all of them fail alike.
func (c *Comm) agree(how creation, local error) error {
	s := c.st
	h := fnv.New64a()
	fmt.Fprint(h, how.Op, c.children, c.name)
	in := binary.LittleEndian.AppendUint64(nil, h.Sum64())
	flag := uint64(0)
	if local != nil {
		flag = 1
	}
	in = binary.LittleEndian.AppendUint64(in, flag)
	out := make([]byte, len(in)*c.size)
	err := s.drv.Collective(driver.Coll{Kind: driver.Allgather, Count: len(in), Send: in, Recv: out, Comm: c.h})
	if err != nil {
		return c.wrap(how.Op, NoPeer, NoTag, err)
	}
	same := true
	for i := 0; i < len(out); i += len(in) {
		same = same && string(out[i:i+8]) == string(in[:8]) && binary.LittleEndian.Uint64(out[i+8:]) == 0
	}
	if same {
		return nil
	}
	return c.explain(how, local)
}

const explainBytes = 256

// explain tells every rank what each of them was about to make.
func (c *Comm) explain(how creation, local error) error {
	text := fmt.Sprintf("%s at %s", how.Op, how.Creator)
	if local != nil {
		text += ": " + local.Error()
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
		fmt.Sprintf("child %d of %s: %s", c.children+1, c.name, strings.Join(parts, "; ")))
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
