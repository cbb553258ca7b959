package arrays

import (
	"io"
	"sort"

	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// cutBlock is a piece of a block of an array.
type cutBlock struct {
	layout.Piece
	block int // which one it is of
}

func partsOf(blocks []Block) (parts []layout.Part) {
	for i := range blocks {
		parts = append(parts, blocks[i].Part)
	}
	return parts
}

// cut divides the blocks into the pieces of the section, so that another number of ranks finds its elements in few
// chunks. The blocks of a program in another process stay whole: its bytes lie in shared memory as in the section.
func (p *Protected) cut(g *array) {
	if g.cuts = nil; !p.Elastic || g.foreign != nil {
		return
	}
	g.local.Parts = nil
	for i := range g.blocks {
		for _, c := range p.Cuts.Cut(&g.local.Array, &g.blocks[i].Part, p.Ranks) {
			g.cuts = append(g.cuts, cutBlock{c, i})
			g.local.Parts = append(g.local.Parts, c.Part)
		}
	}
}

// declared returns the array as the program declares it.
func (g *array) declared() layout.Local {
	l := g.local
	l.Parts = partsOf(g.blocks)
	return l
}

// stored returns the blocks as they lie in the section, each with its place in memory.
func (g *array) stored() []Block {
	return g.placed(func(i int) layout.Place { return g.blocks[i].At })
}

// placed returns the blocks as they lie in the section, where block i has such a place.
func (g *array) placed(at func(i int) layout.Place) (list []Block) {
	if len(g.cuts) == 0 {
		return g.blocks
	}
	for i := range g.cuts {
		c := &g.cuts[i]
		place := at(c.block)
		for d, n := range c.At {
			place.Base += n * place.Stride[d]
		}
		list = append(list, Block{c.Part, place})
	}
	return list
}

// content returns a section with the blocks, which mem holds one after the other. The copy in mem is made while the
// program waits, in long runs; the pieces are collected from it when the section is written.
func (g *array) content(mem []byte) io.ReaderAt {
	if len(g.cuts) <= len(g.blocks) {
		return storage.Bytes(mem)
	}
	dense, base := make([]layout.Place, len(g.blocks)), int64(0)
	for i := range g.blocks {
		dense[i] = layout.Dense(&g.blocks[i].Part, base)
		base += g.blocks[i].Part.Elems()
	}
	c := &cutContent{mem: mem}
	size, from := g.local.Elem, int64(0)
	for _, b := range g.placed(func(i int) layout.Place { return dense[i] }) {
		t := tile{from: from, base: b.At.Base * size, run: size}
		shape := b.Part.Shape()
		d := len(shape) - 1
		for ; d >= 0 && b.At.Stride[d]*size == t.run; d-- {
			t.run *= shape[d]
		}
		t.shape = shape[:d+1]
		for _, n := range b.At.Stride[:d+1] {
			t.stride = append(t.stride, n*size)
		}
		c.tiles = append(c.tiles, t)
		from += b.Part.Elems() * size
	}
	return c
}

// cutContent is memory in another order.
type cutContent struct {
	mem   []byte
	tiles []tile
}

// tile is a box of runs of bytes, that follow each other in the section.
type tile struct {
	from, base    int64   // its beginning in the section, and in memory
	run           int64   // bytes of a run
	shape, stride []int64 // of the runs; stride in bytes
}

// ReadAt copies from memory.
func (c *cutContent) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 || off >= int64(len(c.mem)) {
		return 0, io.EOF
	}
	i := sort.Search(len(c.tiles), func(i int) bool { return c.tiles[i].from > off }) - 1
	for ; n < len(p) && i < len(c.tiles); i++ {
		end := int64(len(c.mem))
		if i+1 < len(c.tiles) {
			end = c.tiles[i+1].from
		}
		part := p[n:min(int64(len(p)), int64(n)+end-off)]
		c.tiles[i].copy(part, c.mem, off)
		n += len(part)
		off += int64(len(part))
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// copy fills p with the bytes of the tile from byte off of the section on.
func (t *tile) copy(p, mem []byte, off int64) {
	k, in := (off-t.from)/t.run, (off-t.from)%t.run
	for len(p) > 0 {
		at, rest := t.base+in, k
		for d := len(t.shape) - 1; d >= 0; d-- {
			at += rest % t.shape[d] * t.stride[d]
			rest /= t.shape[d]
		}
		p = p[copy(p, mem[at:at+t.run-in]):]
		k, in = k+1, 0
	}
}

// Gathered reports nothing: all bytes are in host memory.
func (c *cutContent) Gathered() {}
