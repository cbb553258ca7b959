package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// FoldNodes writes names as a node list, "n[1-3,7],login": what ExpandNodes reads, in the order
// given. Names that follow each other and differ in the number at their end share brackets, so that
// the nodes of a machine make a short list when they are in order.
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

// longestNumber is below what ExpandNodes takes in a range.
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
