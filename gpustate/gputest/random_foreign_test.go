package gputest

import (
	"bytes"
	"context"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gputest/internal/foreign"
)

// foreign has code that knows native handles alone copy a buffer to another one. Half the time
// nobody waits for it before the next capture.
func (m *model) foreign() {
	m.b.Helper()
	i := m.dev.Info()
	if m.luck.IntN(12) > 0 || i.Server != "" {
		return
	}
	var list []*memory
	for _, x := range find[*memory](m) {
		if _, ok := x.linear.(*gpustate.Buffer); ok {
			list = append(list, x)
		}
	}
	if len(list) < 2 {
		return
	}
	to, from := list[m.luck.IntN(len(list))], list[m.luck.IntN(len(list))]
	if to.base() == from.base() {
		return
	}
	code, err := foreign.For(i.Kind)
	m.b.ok(err)
	m.settle()
	n := min(to.bytes, from.bytes)
	m.b.ok(m.dev.Foreign(func(f *gpustate.Foreign) error {
		dst, err := to.linear.(*gpustate.Buffer).Pointer(f)
		m.b.ok(err)
		src, err := from.linear.(*gpustate.Buffer).Pointer(f)
		m.b.ok(err)
		q, err := m.q.q.Native(f)
		m.b.ok(err)
		return code.Copy(q, dst, src, n)
	}))
	copy(to.want[:n], from.want[:n])
	if m.luck.IntN(2) == 0 {
		m.save()
	}
	m.settle()
}

// hashed is what the hashes of a Device were of.
type hashed struct {
	dev   *gpustate.Device
	bytes map[gpustate.Hash][]byte
	sums  map[string]gpustate.Hash
}

// checkHashes compares the hashes of a capture with those of all captures of the Device before:
// chunks have the same one exactly if they have the same bytes.
func (m *model) checkHashes(c *gpustate.Capture) {
	m.b.Helper()
	if m.hashed == nil || m.hashed.dev != m.dev {
		m.hashed = &hashed{m.dev, map[gpustate.Hash][]byte{}, map[string]gpustate.Hash{}}
	}
	list, err := c.Hashes(context.Background())
	m.b.ok(err)
	for i, content := range c.Contents() {
		for k, h := range list[i] {
			if h == (gpustate.Hash{}) {
				continue
			}
			off := int64(k) * gpustate.HashBytes
			b := make([]byte, min(gpustate.HashBytes, content.Bytes-off))
			m.b.ok(c.ReadAt(context.Background(), i, b, off))
			if was, ok := m.hashed.bytes[h]; ok && len(was) == len(b) && !bytes.Equal(was, b) {
				m.b.Fatalf("content %d, chunk %d has the hash of other bytes", i, k)
			}
			if was, ok := m.hashed.sums[string(b)]; ok && was != h {
				m.b.Fatalf("content %d, chunk %d has another hash than the same bytes had", i, k)
			}
			m.hashed.bytes[h], m.hashed.sums[string(b)] = b, h
		}
	}
}
