package crashfs

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"math/rand/v2"
	"path"
	"sort"
	"strings"
)

// Survival selects the unsynced state that is there after a crash.
type Survival int

// The kinds of survival.
const (
	LoseAll Survival = iota // only synced state
	KeepAll                 // everything, as after a kill of all processes
	Torn                    // each unsynced sector or not, and each unsynced change of a name or not
)

// Crash returns the file system as the next start finds it. f is down from now
// on, and may be asked again for other outcomes of the same crash. The new one has
// no rule and f's other settings.
//
// Torn names: file systems write their metadata back in an order of their own,
// so any subset of the changes since the last SyncDir may be there. A rename is
// there whole or not at all.
func (f *FS) Crash(s Survival, seed uint64) *FS {
	r := rand.New(rand.NewPCG(seed, 0))
	return f.crash(&crasher{survival: s, rand: r, keep: func() bool { return r.IntN(2) == 0 }})
}

// CrashNames is Crash by Torn with the outcome for names given: bit i of names says
// whether the i-th of the Unsynced changes is there. Bytes are torn by the seed.
func (f *FS) CrashNames(names, seed uint64) *FS {
	i := -1
	return f.crash(&crasher{survival: Torn, rand: rand.New(rand.NewPCG(seed, 0)),
		keep: func() bool { i++; return i < 64 && names>>i&1 == 1 }})
}

// Unsynced returns the number of changes of names that a crash may lose.
func (f *FS) Unsynced() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.root.unsynced()
}

func (n *node) unsynced() (sum int) {
	sum = len(n.pending)
	for _, v := range n.names {
		if v.dir {
			sum += v.unsynced()
		}
	}
	return sum
}

func (f *FS) crash(c *crasher) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = true
	c.done = map[*node]*node{}
	g := &FS{space: f.space, direct: f.direct, clock: f.clock, noLink: f.noLink}
	g.root = c.copy(f.root)
	g.used = g.root.bytes()
	return g
}

type crasher struct {
	survival Survival
	rand     *rand.Rand
	keep     func() bool     // whether the next unsynced change of a name is there
	done     map[*node]*node // two names of one file stay one file
}

func (c *crasher) copy(n *node) *node {
	if m := c.done[n]; m != nil {
		return m
	}
	m := &node{dir: n.dir, time: n.time}
	c.done[n] = m
	if n.dir {
		c.copyDir(m, n)
	} else {
		m.data = c.fileBytes(n)
		m.durable = append([]byte(nil), m.data...)
		m.dirty = map[int64]bool{}
	}
	return m
}

func (c *crasher) copyDir(m, n *node) {
	m.names, m.synced = map[string]*node{}, map[string]*node{}
	names := map[string]*node{}
	for k, v := range n.synced {
		names[k] = v
	}
	for _, group := range n.pending {
		if c.survival == LoseAll || c.survival == Torn && !c.keep() {
			continue
		}
		for _, ch := range group {
			ch.do(names)
		}
	}
	for _, k := range sortedNames(names) {
		v := c.copy(names[k])
		m.names[k], m.synced[k] = v, v
	}
}

// sortedNames keeps the use of random numbers in one order.
func sortedNames(names map[string]*node) []string {
	out := make([]string, 0, len(names))
	for k := range names {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

func (c *crasher) fileBytes(n *node) []byte {
	out := append([]byte(nil), n.durable...)
	switch c.survival {
	case KeepAll:
		return append([]byte(nil), n.data...)
	case LoseAll:
		return out
	}
	for s := int64(0); s*sector < int64(len(n.data)); s++ {
		if !n.dirty[s] || c.rand.IntN(2) == 0 {
			continue
		}
		end := min((s+1)*sector, int64(len(n.data)))
		if grow := end - int64(len(out)); grow > 0 {
			out = append(out, make([]byte, grow)...)
		}
		copy(out[s*sector:end], n.data[s*sector:end])
	}
	return out
}

func (n *node) bytes() (sum int64) {
	sum = int64(len(n.data))
	counted := map[*node]bool{}
	for _, v := range n.names {
		if !counted[v] {
			counted[v] = true
			sum += v.bytes()
		}
	}
	return sum
}

// Sum is the same for file systems that hold the same, as after two crashes between which nothing was written.
func (f *FS) Sum() (sum [sha256.Size]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := sha256.New()
	f.root.sum(h, map[*node]int{})
	h.Sum(sum[:0])
	return sum
}

// sum has a file again where it has another name: two names of one file are not two files.
func (n *node) sum(h hash.Hash, known map[*node]int) {
	if i, ok := known[n]; ok {
		fmt.Fprintf(h, "as %d", i)
		return
	}
	known[n] = len(known)
	fmt.Fprintf(h, "%t %d %d %d:", n.dir, n.time, len(n.data), len(n.names))
	h.Write(n.data)
	for _, k := range sortedNames(n.names) {
		fmt.Fprintf(h, "%q", k)
		n.names[k].sum(h, known)
	}
}

// Flip inverts bits of one byte of a file, on the disk and in the cache: the
// work of a bad disk.
func (f *FS) Flip(name string, at int64, mask byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find("flip", name)
	if err != nil {
		return err
	}
	n.data[at] ^= mask
	if at < int64(len(n.durable)) {
		n.durable[at] ^= mask
	}
	return nil
}

// Truncate cuts a file short, on the disk and in the cache.
func (f *FS) Truncate(name string, size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find("truncate", name)
	if err != nil {
		return err
	}
	n.data = n.data[:size]
	n.durable = n.durable[:min(size, int64(len(n.durable)))]
	return nil
}

// RemoveAll removes a name and all below it permanently, like a node that is lost.
func (f *FS) RemoveAll(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, base, err := f.parent("removeall", name)
	if err != nil {
		return
	}
	if n := p.names[base]; n != nil {
		f.used -= n.bytes()
	}
	p.apply(change{base, nil})
	p.settle(len(p.pending))
}

// MkdirAll makes a directory and its parents, durably.
func (f *FS) MkdirAll(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.root
	for _, part := range strings.Split(strings.Trim(clean(name), "/"), "/") {
		if part == "" {
			continue
		}
		if n.names[part] == nil {
			n.apply(change{part, newDir()})
			n.settle(len(n.pending))
		}
		n = n.names[part]
	}
}

// String lists all files with their lengths.
func (f *FS) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	f.root.list(&b, "/")
	return b.String()
}

func (n *node) list(b *strings.Builder, name string) {
	if !n.dir {
		fmt.Fprintf(b, "%s %d\n", name, len(n.data))
		return
	}
	for _, k := range sortedNames(n.names) {
		n.names[k].list(b, path.Join(name, k))
	}
}
