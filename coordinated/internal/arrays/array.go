package arrays

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sort"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/zeebo/xxh3"
)

// sectionArray and a name is the section with a rank's elements of a global array: its parts one after the other, each
// a dense row-major array without ghosts. The parts are the boxes that the program declares, or pieces of boxes, so
// that another number of ranks reads few chunks for few elements.
const sectionArray = "array/"

// A Block is a rank's share of a global array, and its place in the memory that the program gave.
type Block struct {
	Part layout.Part
	At   layout.Place // of the first element of the part
}

// array is this rank's share of a global array.
type array struct {
	local   layout.Local
	blocks  []Block          // as the program declares them
	cuts    []cutBlock       // the blocks in pieces, as they lie in the section: the parts of local
	slice   *capture.Slice   // in this process, or
	foreign *capture.Foreign // in another one, or
	dev     *inBuffer        // on a device

	changing *changing // nil: the blocks stay as they are
}

// replica is a value that is the same on all ranks.
type replica struct {
	capture.Named
	first bool // this rank stores it however large it is
}

// AddGlobal protects this rank's share of an array. x is a pointer to a slice of fixed-size elements, which keeps its
// length.
func (p *Protected) AddGlobal(name string, dims []int64, blocks []Block, x any) error {
	if err := p.Free(name); err != nil {
		return err
	}
	g := &array{blocks: blocks, local: layout.Local{Array: layout.Array{Name: name, Dims: dims, Kind: layout.Divided,
		Section: sectionArray + name}}}
	if err := p.memoryOf(g, x); err != nil {
		return err
	}
	g.local.Parts = partsOf(blocks)
	if err := g.local.Fits(-1); err != nil {
		return err
	}
	if err := g.inMemory(); err != nil {
		return err
	}
	if err := g.apart(); err != nil {
		return err
	}
	p.cut(g)
	if g.dev != nil {
		g.share()
	}
	p.add(g)
	return nil
}

func (p *Protected) memoryOf(g *array, x any) error {
	if m, ok := x.(DeviceMemory); ok {
		return p.device(g, m)
	}
	if t := reflect.TypeOf(x); t != nil && t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Slice &&
		t.Elem().Elem().Kind() == reflect.Slice {
		return fmt.Errorf("the rows of a %v lie anywhere; keep the array in one slice, row after row", t.Elem())
	}
	r, err := p.NewRegion(x)
	if err != nil {
		return err
	}
	slice, ok := r.(*capture.Slice)
	if !ok {
		return fmt.Errorf("memory of a global array is a slice or a buffer of a device; pass a pointer to the slice, " +
			"or InBuffer")
	}
	g.slice, g.local.Type, g.local.Elem = slice, slice.Layout, slice.Elem()
	return nil
}

// AddReplicated protects a value that is the same on all ranks; first marks the rank that stores it.
func (p *Protected) AddReplicated(name string, x any, first bool) error {
	if err := p.Free(name); err != nil {
		return err
	}
	r, err := p.NewRegion(x)
	if err != nil {
		return err
	}
	p.NameArray(name, nil)
	p.replicas = append(p.replicas, &replica{capture.Named{Name: name, Region: r}, first})
	return nil
}

// inMemory makes sure that the blocks lie in the slice as it is now.
func (g *array) inMemory() error {
	if g.foreign != nil { // its parts lie in shared memory one after the other
		return nil
	}
	have := g.length()
	for i := range g.blocks {
		b := &g.blocks[i]
		last := b.At.Base
		for d, n := range b.Part.Shape() {
			last += (n - 1) * b.At.Stride[d]
		}
		if b.At.Base < 0 || last >= have {
			return fmt.Errorf("block %d takes the elements %d to %d of the memory, which has %d: make the slice "+
				"longer, or correct offset and pitch", i, b.At.Base, last, have)
		}
	}
	return nil
}

// length returns how many elements the memory has.
func (g *array) length() int64 {
	if g.dev != nil {
		return int64(g.dev.Bytes()) / g.local.Elem
	}
	return int64(g.slice.V.Len())
}

// apart makes sure that no two elements have one place in memory: a restore would write both there.
func (g *array) apart() error {
	if len(g.blocks) < 2 {
		return nil // its pitch keeps rows apart
	}
	type run struct{ from, n int64 }
	var runs []run
	err := each(g.blocks, func(from, _, n int64) error {
		if runs = append(runs, run{from, n}); len(runs) > layout.MaxSpans {
			return &layout.LimitError{Runs: int64(len(runs))}
		}
		return nil
	})
	sort.Slice(runs, func(i, j int) bool { return runs[i].from < runs[j].from })
	for i := 1; i < len(runs) && err == nil; i++ {
		if runs[i-1].from+runs[i-1].n > runs[i].from {
			err = fmt.Errorf("two blocks take element %d of the memory; give each its own offset", runs[i].from)
		}
	}
	return err
}

// each visits the elements of blocks as runs that are contiguous in memory and in the dense array of all blocks.
func each(blocks []Block, visit func(mem, dense, n int64) error) error {
	base := int64(0)
	for i := range blocks {
		part := &blocks[i].Part
		err := layout.Meet(part, layout.Dense(part, base), part, blocks[i].At,
			func(dense, mem, n int64) error { return visit(mem, dense, n) })
		if err != nil {
			return err
		}
		base += part.Elems()
	}
	return nil
}

func (g *array) bytes() int64 {
	if g.foreign != nil {
		return g.foreign.Bytes()
	}
	if g.changing != nil && g.local.Dims == nil { // its blocks are not known yet
		return g.length() * g.local.Elem
	}
	return g.local.Elems() * g.local.Elem
}

// mem returns the memory that the blocks lie in.
func (g *array) mem() []byte {
	if g.foreign != nil {
		return g.foreign.Shared
	}
	return g.slice.Mem()
}

// gatherJob is how long a run is, in bytes, that is worth a job of its own.
const gatherJob = 64 << 10

// gather copies the rank's elements to dst; the jobs are left to do.
func (g *array) gather(dst []byte) (jobs []capture.Copy, err error) {
	if err := g.inMemory(); err != nil {
		return nil, err
	}
	mem, size := g.mem(), g.local.Elem
	err = each(g.blocks, func(from, to, n int64) error {
		j := capture.Copy{Dst: dst[to*size : (to+n)*size], Src: mem[from*size : (from+n)*size]}
		if n*size >= gatherJob {
			jobs = append(jobs, j)
		} else {
			copy(j.Dst, j.Src)
		}
		return nil
	})
	return jobs, err
}

func (p *Protected) captureArrays(s *capture.Snapshot) (list []layout.Local, err error) {
	var jobs []capture.Copy
	for _, g := range p.presentArrays() {
		if g.foreign != nil {
			s.Add(g.local.Section, storage.Bytes(g.foreign.Shared), g.bytes())
			list = append(list, g.local)
			continue
		}
		if g.dev != nil { // captureBuffers has it
			list = append(list, g.local)
			continue
		}
		dst := p.Alloc(int(g.bytes()))
		if dst == nil {
			dst = make([]byte, g.bytes())
		}
		more, err := g.gather(dst)
		if err != nil {
			return nil, fmt.Errorf("capture %q: %w", g.local.Name, err)
		}
		jobs = append(jobs, more...)
		s.Add(g.local.Section, g.content(dst), int64(len(dst)))
		list = append(list, g.local)
	}
	p.CopyAll(jobs)
	for _, set := range p.items {
		l, err := set.capture(p, s)
		if err != nil {
			return nil, fmt.Errorf("capture %q: %w", set.local.Name, err)
		}
		list = append(list, l)
	}
	for _, r := range p.presentReplicas() {
		b, fresh, err := r.View()
		if err != nil {
			return nil, fmt.Errorf("capture %q: %w", r.Name, err)
		}
		if !fresh {
			b = slices.Clone(b)
		}
		l := layout.Local{Array: layout.Array{Name: r.Name, Type: r.Kind(), Elem: 1, Dims: []int64{int64(len(b))},
			Kind: layout.Replicated, Section: sectionArray + r.Name}, Sum: xxh3.Hash128(b).Bytes()}
		if (r.first || len(b) < capture.InlineBytes) && len(b) > 0 {
			l.Parts = []layout.Part{layout.Box([]int64{0}, l.Dims)}
			s.Add(l.Section, storage.Bytes(b), int64(len(b)))
		}
		list = append(list, l)
	}
	return list, nil
}

func (p *Protected) addLayout(s *capture.Snapshot, list []layout.Local, mail []byte) error {
	if len(list) == 0 && !p.Elastic {
		return nil
	}
	quiet, err := isQuiet(mail)
	if err != nil {
		return fmt.Errorf("capture mailbox: %w", err)
	}
	l := storage.Layout{Quiet: quiet, PerRank: len(p.PerRank()) > 0, Arrays: list}
	b, err := l.Encode()
	if err != nil {
		return fmt.Errorf("capture layouts: %w", err)
	}
	s.Add(storage.LayoutSection, storage.Bytes(b), int64(len(b)))
	return nil
}

// isQuiet reports whether a record of the mailbox has no message and no receive.
func isQuiet(mail []byte) (bool, error) {
	if len(mail) < 8 {
		return false, fmt.Errorf("record of %d bytes", len(mail))
	}
	n := binary.LittleEndian.Uint64(mail)
	if n > uint64(len(mail)-8) {
		return false, fmt.Errorf("description of %d bytes in a record of %d", n, len(mail))
	}
	var d struct{ Boxes, Receives []json.RawMessage }
	if err := json.Unmarshal(mail[8:8+n], &d); err != nil {
		return false, err
	}
	return len(d.Boxes) == 0 && len(d.Receives) == 0, nil
}

// Declared returns the rank's report on its present declarations: arrays, and the types of sets.
func (p *Protected) Declared() ([]byte, error) {
	var l storage.Layout
	for _, g := range p.presentArrays() {
		now := g.declared()
		if g.changing != nil { // its dimensions are not known before there is a checkpoint
			now.Type, now.Dims, now.Parts = now.Type+changes, []int64{0}, nil
		}
		l.Arrays = append(l.Arrays, now)
	}
	for _, s := range p.items {
		l.Arrays = append(l.Arrays, s.local)
	}
	if len(l.Arrays) == 0 {
		return Nothing(), nil
	}
	return sayLayout(&l)
}
