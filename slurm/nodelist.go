package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// maxNames bounds the names in a node list: more than any machine has.
const maxNames = 1 << 20

// maxListBytes bounds all names of a list together.
const maxListBytes = 64 << 20

// listError describes the fault of a node list, with its beginning.
func listError(list, format string, args ...any) error {
	const most = 200
	if len(list) > most {
		list = list[:most] + "..."
	}
	return fmt.Errorf("slurm: node list %q: %s", list, fmt.Sprintf(format, args...))
}

// ExpandNodes returns the names of a node list such as "n[1-3,07],login,r[1-2]c[01-16]", in the order written. Leading
// zeros are kept, and several brackets multiply. More than 2^20 names are an error.
func ExpandNodes(list string) ([]string, error) {
	if list == "" || list == "(null)" {
		return nil, nil
	}
	if i := strings.IndexFunc(list, func(c rune) bool { return c <= ' ' || c >= 0x7f }); i >= 0 {
		return nil, listError(list, "character %q", list[i])
	}
	var names []string
	for rest, more := list, true; more; {
		var item string
		if item, rest, more = cutItem(rest); item == "" {
			return nil, listError(list, "a name is missing")
		}
		expanded, err := expand(item)
		if err != nil {
			return nil, err
		}
		if names = append(names, expanded...); len(names) > maxNames {
			return nil, listError(list, "more than %d names", maxNames)
		}
	}
	return names, nil
}

// cutItem cuts a list at its first comma outside of brackets.
func cutItem(list string) (item, rest string, more bool) {
	inside := false
	for i, c := range []byte(list) {
		switch {
		case c == '[' || c == ']':
			inside = c == '['
		case c == ',' && !inside:
			return list[:i], list[i+1:], true
		}
	}
	return list, "", false
}

// expand multiplies the brackets of an item.
func expand(item string) (names []string, err error) {
	head, rest, found := strings.Cut(item, "[")
	body, tail, closed := strings.Cut(rest, "]")
	if strings.Contains(head, "]") || strings.Contains(body, "[") || found != closed {
		return nil, listError(item, "brackets do not pair")
	}
	if !found {
		return []string{head}, nil
	}
	tails, err := expand(tail)
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(body, ",") {
		numbers, err := expandRange(part)
		if err != nil {
			return nil, err
		}
		total := len(names) + len(numbers)*len(tails)
		if total > maxNames || total*(len(head)+len(part)+len(tails[len(tails)-1])) > maxListBytes {
			return nil, listError(item, "more than %d names", maxNames)
		}
		for _, n := range numbers {
			for _, t := range tails {
				names = append(names, head+n+t)
			}
		}
	}
	return names, nil
}

// expandRange returns the numbers of "008-010", or a text that is no range as it is.
func expandRange(part string) (numbers []string, err error) {
	low, high, is := strings.Cut(part, "-")
	if !is || !digits(low) || !digits(high) {
		if part == "" {
			return nil, listError(part, "a number is missing")
		}
		return []string{part}, nil
	}
	a, aerr := strconv.ParseUint(low, 10, 32)
	b, berr := strconv.ParseUint(high, 10, 32)
	if aerr != nil || berr != nil || b < a || b-a >= maxNames || len(low) > 32 {
		return nil, listError(part, "no range")
	}
	for ; a <= b; a++ {
		numbers = append(numbers, fmt.Sprintf("%0*d", len(low), a))
	}
	return numbers, nil
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
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
			return nil, listError(list, "count %q", item)
		}
		for range k {
			counts = append(counts, int(n))
		}
	}
	return counts, nil
}

// FoldNodes writes names as a node list for ExpandNodes, "n[1-3,7],login", in the order given. Names that follow each
// other and differ in the number at their end share brackets. So the nodes of a machine, in order, make a short list.
func FoldNodes(names []string) string {
	var items []string
	for i := 0; i < len(names); {
		head, first := cutNumber(names[i])
		var ranges []string
		end := i
		for end < len(names) && first != "" {
			other, low := cutNumber(names[end])
			if other != head || low == "" {
				break
			}
			n, _ := strconv.Atoi(low) // digits by cutNumber
			high := low
			for end++; end < len(names) && names[end] == head+fmt.Sprintf("%0*d", len(low), n+1); end++ {
				n++
				high = names[end][len(head):]
			}
			if high != low {
				low += "-" + high
			}
			ranges = append(ranges, low)
		}
		if end <= i+1 {
			items, end = append(items, names[i]), i+1
		} else {
			items = append(items, head+"["+strings.Join(ranges, ",")+"]")
		}
		i = end
	}
	return strings.Join(items, ",")
}

// longestNumber is below the limit of ExpandNodes for a range.
const longestNumber = 9

// cutNumber takes the digits off the end of a name; none if they are too many, or if the name has
// brackets itself.
func cutNumber(name string) (head, digits string) {
	head = strings.TrimRight(name, "0123456789")
	if len(name)-len(head) > longestNumber || strings.ContainsAny(name, "[],") {
		return name, ""
	}
	return head, name[len(head):]
}
