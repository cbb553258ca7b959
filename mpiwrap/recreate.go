package mpiwrap

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/internal/elf"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

// After a restart the program makes its communicators again; see Comm. They are
// known by the order of creation on their parent: the first creations of this run
// get the names that the record holds and no communicator of this run has yet, in the
// order in which the run before made them; later ones go on counting where the
// checkpoint stood.

// record describes c for a checkpoint.
func (c *Comm) record() commRecord {
	r := commRecord{Name: c.ch.Name, How: c.how, Members: c.ch.Members, Children: c.childrenSoFar(),
		Groups: map[string]int{}}
	for k, n := range c.groups {
		r.Groups[k] = n
	}
	if before := c.before(); before != nil {
		for k, n := range before.Groups {
			r.Groups[k] = max(r.Groups[k], n)
		}
	}
	return r
}

// freedBelow are the freed communicators that c was made on, from the nearest on.
func (c *Comm) freedBelow(yield func(*Comm) bool) {
	for p := c.from; p != nil; p = p.from {
		if p.ch.Freed && !yield(p) {
			return
		}
	}
}

// before returns the record of c, or nil.
func (c *Comm) before() *commRecord {
	if c.st.restored == nil {
		return nil
	}
	return c.st.restored.find(c.ch.Name, c.ch.Members)
}

// find returns the communicator of a name. Records of version 1 may have two of one
// name, groups with different members.
func (r *record) find(name string, members []int) (found *commRecord) {
	for i := range r.Comms {
		k := &r.Comms[i]
		if k.Name != name {
			continue
		}
		if slices.Equal(k.Members, members) {
			return k
		}
		if found == nil {
			found = k
		}
	}
	return found
}

// unclaimed returns the communicators that this run has not made again.
func (r *record) unclaimed() []commRecord {
	var out []commRecord
	for _, c := range r.Comms {
		if !c.claimed {
			out = append(out, c)
		}
	}
	return out
}

// childrenSoFar counts creations on c, those before the restart included.
func (c *Comm) childrenSoFar() int {
	if b := c.before(); b != nil {
		return max(c.children, b.Children)
	}
	return c.children
}

// matches claims c's entry and compares it with c.
func (r *record) matches(c *Comm) error {
	b := r.find(c.ch.Name, c.ch.Members)
	if b == nil {
		return nil
	}
	b.claimed = true
	if b.How.Op != c.how.Op || !slices.Equal(b.Members, c.ch.Members) {
		return c.ch.Fail(cmp.Or(c.how.Op, "Init"), NoPeer, NoTag, ErrMismatch,
			fmt.Sprintf("%s is made by %s of world ranks %v, but before the restart it was made by %s of %v",
				c.ch.Name, c.how.by(), c.ch.Members, b.How.by(), b.Members))
	}
	return nil
}

func (how creation) by() string {
	s := cmp.Or(how.Op, "Init") + " at " + cmp.Or(how.Creator, "start")
	if len(how.Path) > 0 {
		s += " in " + funcOf(how.Path[0])
	}
	return s
}

// claim is the child of c that has to be made next, of those the record holds.
type claim struct {
	number int // of the child; 0 when the record holds no more
	rec    *commRecord
}

// key orders claims: by turn, then by number. It is 0 for none.
func (k claim) key() uint64 {
	if k.rec == nil {
		return 0
	}
	return uint64(k.rec.How.Turn)<<32 | uint64(k.number)
}

// nextClaim returns the child of c whose turn it is: the first that is in the record and
// not in this run, groups aside. One that was made at another place than how says is passed over unless
// messages wait for it: then the creation is refused. Ranks may differ; the first counts.
func (c *Comm) nextClaim(how *creation) claim {
	var best claim
	if c.st.restored == nil {
		return best
	}
	c.st.Lock() // claims, with ThreadMultiple
	defer c.st.Unlock()
	for i := range c.st.restored.Comms {
		r := &c.st.restored.Comms[i]
		if r.claimed || r.How.Parent != c.ch.Name || r.How.Op == call.CreateGroup.String() {
			continue
		}
		if fit := c.st.restored.fit(r, how); fit == otherPlace {
			continue
		}
		k := claim{r.number(), r}
		if k.number > 0 && (best.rec == nil || k.key() < best.key()) {
			best = k
		}
	}
	return best
}

// number returns the child's number in its name: "world.2[3]" is 2.
func (r *commRecord) number() int {
	s := r.Name[strings.LastIndexByte(r.Name, '.')+1:]
	if i := strings.IndexByte(s, '['); i >= 0 {
		s = s[:i]
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// print is equal for creations by the same call with the same arguments.
func (how creation) print() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, how.Op, how.Color, how.Key, how.Ranks, how.Tag)
	return h.Sum64()
}

// groupNumber returns the number of the next creation by a group, and its record, or nil.
func (c *Comm) groupNumber(how *creation) (int, *commRecord) {
	key := how.groupKey()
	c.st.Lock()
	defer c.st.Unlock()
	if c.groups == nil {
		c.groups = map[string]int{}
	}
	if s := c.st.restored; s != nil {
		var best *commRecord
		for i := range s.Comms {
			r := &s.Comms[i]
			if r.claimed || r.How.Parent != c.ch.Name || r.How.Op != how.Op || r.How.groupKey() != key {
				continue
			}
			if n := r.number(); n > 0 && (best == nil || n < best.number()) {
				best = r
			}
		}
		if best != nil {
			return best.number(), best
		}
		if b := c.before(); b != nil {
			c.groups[key] = max(c.groups[key], b.Groups[key])
		}
	}
	c.groups[key]++
	return c.groups[key], nil
}

// Which communicator of a checkpoint one is that a restarted program makes: by the
// order on its parent, and, so that messages never go to another, by its place in the
// program.

// pathLength is how many functions a creation's Path has at most.
const pathLength = 6

// locate notes the communicator that the program makes this one on, the call and its place.
func (how *creation) locate(parent *Comm, op call.Op) {
	how.Parent, how.Op = parent.ch.Name, op.String()
	site := request.NoteSite()
	how.Creator = site.String()
	for _, f := range site.Frames() {
		if len(how.Path) == pathLength || f.Function == "runtime.goexit" {
			break
		}
		how.Path = append(how.Path, fmt.Sprintf("%s:%d", f.Function, f.Line))
	}
}

// place returns the innermost function and line of the program.
func (how *creation) place() string {
	if len(how.Path) == 0 {
		return ""
	}
	return how.Path[0]
}

// funcOf returns the function of an entry of Path, without line, type parameters and
// the numbers that the compiler gives to function literals: these change when other
// lines of the program do.
func funcOf(entry string) string {
	if i := strings.LastIndexByte(entry, ':'); i >= 0 {
		entry = entry[:i]
	}
	if i := strings.IndexByte(entry, '['); i >= 0 {
		entry = entry[:i]
	}
	slash := strings.LastIndexByte(entry, '/') + 1
	parts := strings.Split(entry[slash:], ".")
	for len(parts) > 2 && isLiteral(parts[len(parts)-1]) {
		parts = parts[:len(parts)-1]
	}
	return entry[:slash] + strings.Join(parts, ".")
}

// isLiteral reports whether part of a function's name is a number, or a word of the
// compiler's and a number: "func2", "gowrap1", "3".
func isLiteral(part string) bool {
	return slices.ContainsFunc([]string{"func", "gowrap", "deferwrap", ""}, func(word string) bool {
		n, ok := strings.CutPrefix(part, word)
		return ok && n != "" && strings.Trim(n, "0123456789") == ""
	})
}

// common returns how many functions two paths have in common, from the innermost on.
func (r *record) common(a, b *creation) int {
	n := 0
	for n < min(len(a.Path), len(b.Path)) {
		x, y := a.Path[n], b.Path[n]
		if !r.ofThisBuild() {
			x, y = funcOf(x), funcOf(y)
		}
		if x != y {
			break
		}
		n++
	}
	return n
}

func (r *record) ofThisBuild() bool { return r.Build != "" && r.Build == buildID() }

// atOtherPlace reports whether a communicator that is made as how says was made at another
// place than k, or another one of k's parent fits better. Records of version 1 have no
// paths, and say nothing.
func (r *record) atOtherPlace(k *commRecord, how *creation) bool {
	if len(k.How.Path) == 0 || len(how.Path) == 0 {
		return false
	}
	n := r.common(&k.How, how)
	if n == 0 {
		return true
	}
	for i := range r.Comms {
		o := &r.Comms[i]
		if o != k && !o.claimed && o.How.Parent == k.How.Parent && o.How.Op == k.How.Op && r.common(&o.How, how) > n {
			return true
		}
	}
	return false
}

// fit says how a creation fits the communicator of the record whose turn it is.
func (r *record) fit(k *commRecord, how *creation) (bits uint64) {
	if k.How.print() != how.print() {
		bits |= otherCall
	}
	if r.atOtherPlace(k, how) {
		bits |= otherPlace
	}
	if r.hasMail(k.Name) {
		bits |= mailWaits
	}
	return bits
}

// hasMail reports whether messages wait for a communicator or one made from it, or a
// receive was pending there.
func (r *record) hasMail(name string) bool {
	for i := range r.Boxes {
		if c := r.Boxes[i].Comm; c == name || strings.HasPrefix(c, name+".") {
			return true
		}
	}
	return slices.ContainsFunc(r.Receives, func(p endpoint.PendingReceive) bool {
		return p.Comm == name || strings.HasPrefix(p.Comm, name+".")
	})
}

// misplaced refuses a communicator that would get messages of another.
func (r *record) misplaced(c *Comm, before *commRecord) error {
	if !r.hasMail(before.Name) || !r.atOtherPlace(before, &c.how) {
		return nil
	}
	return c.ch.Fail(c.how.Op, NoPeer, NoTag, ErrMismatch,
		fmt.Sprintf("%s is made by %s, but before the restart it was made by %s, and messages wait for it; make "+
			"communicators in the same order and at the same places as before (see Comm)",
			before.Name, c.how.by(), before.How.by()))
}

// twice returns a name that two communicators have for which messages wait.
func (r *record) twice() string {
	seen := map[string]bool{}
	for i := range r.Comms {
		name := r.Comms[i].Name
		if seen[name] && r.hasMail(name) {
			return name
		}
		seen[name] = true
	}
	return ""
}

// buildID returns the build ID that the linker has put into the executable, or "".
var buildID = sync.OnceValue(func() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer f.Close()
	exe, err := elf.Read(f)
	if err != nil {
		return ""
	}
	for _, name := range []string{".note.go.buildid", ".note.gnu.build-id"} {
		if s := exe.Section(name); s != nil {
			if b, err := exe.Data(s); err == nil && len(b) > 16 && len(b) < 4096 {
				return hex.EncodeToString(b[16:])
			}
		}
	}
	return ""
})
