package arrays

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestCutContent: the section of an array that is cut has its pieces one after the other, wherever reads begin and end.
func TestCutContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := New(0, 1, nil, nil)
		p.Elastic, p.Ranks, p.Cuts = true, 2, layout.Cuts{Most: 4, Run: 1, Piece: 1, Long: 1 << 30, Runs: 1 << 20}
		dims := rapid.SliceOfN(rapid.Int64Range(2, 9), 1, 4).Draw(t, "dims")
		var blocks []Block
		at := int64(0) // place of the next block, with a gap behind each row
		for range rapid.IntRange(1, 3).Draw(t, "blocks") {
			start, count := make([]int64, len(dims)), make([]int64, len(dims))
			b := Block{At: layout.Place{Base: at, Stride: make([]int64, len(dims))}}
			pitch := int64(1)
			for d := len(dims) - 1; d >= 0; d-- {
				start[d] = rapid.Int64Range(0, dims[d]-1).Draw(t, "start")
				count[d] = rapid.Int64Range(1, dims[d]-start[d]).Draw(t, "count")
				b.At.Stride[d] = pitch
				pitch *= count[d] + rapid.Int64Range(0, 1).Draw(t, "gap")
			}
			at += pitch
			b.Part = layout.Box(start, count)
			blocks = append(blocks, b)
		}
		mem := make([]int32, at)
		for i := range mem {
			mem[i] = int32(i)
		}
		if err := p.AddGlobal("u", dims, blocks, &mem); err != nil {
			t.Fatal(err)
		}
		g := p.arrays[0]
		var want []byte
		err := each(g.stored(), func(from, _, n int64) error {
			for k := range n {
				want = binary.LittleEndian.AppendUint32(want, uint32(from+k))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, g.bytes())
		jobs, err := g.gather(dst)
		if err != nil {
			t.Fatal(err)
		}
		p.CopyAll(jobs)
		content := g.content(dst)
		off := rapid.IntRange(0, len(want)-1).Draw(t, "off")
		got := make([]byte, rapid.IntRange(0, len(want)-off).Draw(t, "n"))
		n, err := content.ReadAt(got, int64(off))
		if right := want[off : off+len(got)]; n != len(got) || err != nil || !bytes.Equal(got, right) {
			t.Fatalf("got %d of %d bytes from %d on, %v: %v, want %v", n, len(got), off, err, got, right)
		}
		if n, err := content.ReadAt(make([]byte, 5), int64(len(want)-1)); n != 1 || err != io.EOF {
			t.Errorf("%d bytes behind the end, %v", n, err)
		}
		if _, whole := content.(storage.Bytes); whole != (len(g.cuts) == len(blocks)) {
			t.Errorf("%d blocks in %d pieces are a %T", len(blocks), len(g.cuts), content)
		}
	})
}
