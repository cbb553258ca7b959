package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// maxNames bounds what a node list may expand to: more than any machine has.
const maxNames = 1 << 20

// maxListBytes bounds all names of a list together.
const maxListBytes = 64 << 20

// NodeListError says what is wrong with a node list.
type NodeListError struct {
	List string
	Why  string
}

// Error gives the beginning of the list, and what is wrong with it.
func (e *NodeListError) Error() string {
	const most = 200
	list := e.List
	if len(list) > most {
		list = list[:most] + "..."
	}
	return fmt.Sprintf("slurm: node list %q: %s", list, e.Why)
}

// ExpandNodes returns the names of a node list such as "n[1-3,07],login,r[1-2]c[01-16]",
// in the order written; leading zeros are kept, several brackets multiply, and
// brackets may be nested. Errors are *NodeListError.
func ExpandNodes(list string) ([]string, error) {
	if list == "" || list == "(null)" {
		return nil, nil
	}
	p := &listParser{s: list}
	names, why := p.alternatives(0)
	if why == "" && p.i < len(p.s) {
		why = fmt.Sprintf("unexpected %q at %d", p.s[p.i], p.i)
	}
	if why != "" {
		return nil, &NodeListError{list, why}
	}
	return names, nil
}

// listParser reads
//
//	alternatives = item { "," item }
//	item         = { text | "[" alternatives "]" }
//
// where an item inside brackets may also be a range of numbers, "a-b".
type listParser struct {
	s string
	i int
}

// maxDepth bounds the nesting of brackets.
const maxDepth = 8

func (p *listParser) alternatives(depth int) (names []string, why string) {
	if depth > maxDepth {
		return nil, fmt.Sprintf("more than %d brackets inside each other", maxDepth)
	}
	bytes := 0
	for {
		more, why := p.item(depth)
		if why != "" {
			return nil, why
		}
		names = append(names, more...)
		for _, n := range more {
			bytes += len(n)
		}
		if len(names) > maxNames || bytes > maxListBytes {
			return nil, fmt.Sprintf("more than %d names", maxNames)
		}
		if p.i == len(p.s) || p.s[p.i] != ',' {
			return names, ""
		}
		p.i++
	}
}

func (p *listParser) item(depth int) (names []string, why string) {
	names = []string{""}
	start := p.i
	for p.i < len(p.s) {
		var parts []string
		switch c := p.s[p.i]; c {
		case ',', ']':
			return p.rest(start, names)
		case '[':
			p.i++
			if parts, why = p.alternatives(depth + 1); why != "" {
				return nil, why
			}
			if p.i == len(p.s) {
				return nil, "a bracket is not closed"
			}
			p.i++ // alternatives stops at ']' only
		default:
			if parts, why = p.text(depth > 0 && len(names) == 1 && names[0] == ""); why != "" {
				return nil, why
			}
		}
		if names, why = product(names, parts); why != "" {
			return nil, why
		}
	}
	return p.rest(start, names)
}

func (p *listParser) rest(start int, names []string) ([]string, string) {
	if p.i == start {
		return nil, fmt.Sprintf("a name is missing at %d", p.i)
	}
	return names, ""
}

// text reads up to the next bracket or comma; where a range may stand it is
// expanded.
func (p *listParser) text(mayRange bool) (names []string, why string) {
	n := strings.IndexAny(p.s[p.i:], "[],")
	if n < 0 {
		n = len(p.s) - p.i
	}
	text := p.s[p.i : p.i+n]
	p.i += n
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f {
			return nil, fmt.Sprintf("character %q", c)
		}
	}
	low, high, isRange := strings.Cut(text, "-")
	if !mayRange || !isRange || !digits(low) || !digits(high) {
		return []string{text}, ""
	}
	a, aerr := strconv.ParseUint(low, 10, 32)
	b, berr := strconv.ParseUint(high, 10, 32)
	if aerr != nil || berr != nil || b < a || b-a >= maxNames {
		return nil, fmt.Sprintf("range %q", text)
	}
	if len(low) > 32 {
		return nil, fmt.Sprintf("range %q", text)
	}
	for ; a <= b; a++ {
		names = append(names, fmt.Sprintf("%0*d", len(low), a))
	}
	return names, ""
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func product(heads, tails []string) (names []string, why string) {
	if len(heads) > maxNames/len(tails) {
		return nil, fmt.Sprintf("more than %d names", maxNames)
	}
	bytes := 0
	for _, h := range heads {
		for _, t := range tails {
			names = append(names, h+t)
			if bytes += len(h) + len(t); bytes > maxListBytes {
				return nil, fmt.Sprintf("more than %d names", maxNames)
			}
		}
	}
	return names, ""
}

// ExpandCounts returns the numbers of a list such as "4(x2),3", as in
// SLURM_JOB_CPUS_PER_NODE.
func ExpandCounts(list string) ([]int, error) {
	if list == "" {
		return nil, nil
	}
	var counts []int
	for item := range strings.SplitSeq(list, ",") {
		value, times := item, "1"
		if head, tail, ok := strings.Cut(item, "(x"); ok && strings.HasSuffix(tail, ")") {
			value, times = head, strings.TrimSuffix(tail, ")")
		}
		n, err := strconv.ParseUint(value, 10, 31)
		k, kerr := strconv.ParseUint(times, 10, 31)
		if err != nil || kerr != nil || k > uint64(maxNames-len(counts)) {
			return nil, &NodeListError{list, fmt.Sprintf("count %q", item)}
		}
		for range k {
			counts = append(counts, int(n))
		}
	}
	return counts, nil
}
