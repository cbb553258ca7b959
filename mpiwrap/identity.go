package mpiwrap

import (
	"debug/elf"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
)

// Which communicator of a checkpoint one is that a restarted program makes: by the
// order on its parent, and, so that messages never go to another, by its place in the
// program.

// pathLength is how many functions a creation's Path has at most.
const pathLength = 6

// locate fills in where the program makes the communicator.
func (how *creation) locate() {
	how.Creator = how.site.String()
	for _, f := range how.site.Frames() {
		if len(how.Path) == pathLength || f.Function == "runtime.goexit" {
			break
		}
		how.Path = append(how.Path, fmt.Sprintf("%s:%d", f.Function, f.Line))
	}
}

// place is the innermost function and line of the program.
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

// isLiteral says whether part of a function's name is a number, or a word of the
// compiler's and a number: "func2", "gowrap1", "3".
func isLiteral(part string) bool {
	for _, word := range []string{"func", "gowrap", "deferwrap", ""} {
		if n, ok := strings.CutPrefix(part, word); ok && n != "" && strings.Trim(n, "0123456789") == "" {
			return true
		}
	}
	return false
}

// common is how many functions two paths have in common, from the innermost on.
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

// elsewhere says whether a communicator that is made as how says was made at another
// place than k, or another one of k's parent fits better. Records of version 1 have no
// paths, and say nothing.
func (r *record) elsewhere(k *commRecord, how *creation) bool {
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
	if r.elsewhere(k, how) {
		bits |= otherPlace
	}
	if r.hasMail(k.Name) {
		bits |= mailWaits
	}
	return bits
}

// hasMail says whether messages wait for a communicator or one made from it, or a
// receive was pending there.
func (r *record) hasMail(name string) bool {
	for i := range r.Boxes {
		if c := r.Boxes[i].Comm; c == name || strings.HasPrefix(c, name+".") {
			return true
		}
	}
	for i := range r.Receives {
		if c := r.Receives[i].Comm; c == name || strings.HasPrefix(c, name+".") {
			return true
		}
	}
	return false
}

// misplaced refuses a communicator that would get messages of another.
func (r *record) misplaced(c *Comm, before *commRecord) error {
	if !r.hasMail(before.Name) || !r.elsewhere(before, &c.how) {
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

// buildID returns what the linker has put into the executable to tell builds apart,
// or "".
var buildID = sync.OnceValue(func() string {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer f.Close()
	for _, name := range []string{".note.go.buildid", ".note.gnu.build-id"} {
		if s := f.Section(name); s != nil && s.Size < 4096 {
			if b, err := s.Data(); err == nil && len(b) > 16 {
				return hex.EncodeToString(b[16:])
			}
		}
	}
	return ""
})
