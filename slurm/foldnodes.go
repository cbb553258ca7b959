package slurm

import (
	"strconv"
	"strings"
)

// FoldNodes writes names as a node list, "n[1-3,7],login": what ExpandNodes reads, in the order
// given. Names that follow each other and differ in the number at their end share brackets, so that
// the nodes of a machine make a short list when they are in order.
func FoldNodes(names []string) string {
	var b strings.Builder
	for i := 0; i < len(names); {
		if i > 0 {
			b.WriteByte(',')
		}
		head, _ := cutNumber(names[i])
		end := i + 1
		for end < len(names) && sameHead(head, names[i], names[end]) {
			end++
		}
		if end == i+1 {
			b.WriteString(names[i])
		} else {
			b.WriteString(head + "[")
			foldNumbers(&b, len(head), names[i:end])
			b.WriteByte(']')
		}
		i = end
	}
	return b.String()
}

// sameHead reports whether two names are a head and a number each.
func sameHead(head, first, next string) bool {
	other, digits := cutNumber(next)
	return other == head && digits != "" && first != head
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

// foldNumbers writes the numbers behind the head of names, those that rise by one as ranges.
func foldNumbers(b *strings.Builder, head int, names []string) {
	for i := 0; i < len(names); {
		low := names[i][head:]
		n, _ := strconv.Atoi(low) // digits by cutNumber
		end := i + 1
		for end < len(names) && names[end][head:] == padded(n+end-i, len(low)) {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(low)
		if end > i+1 {
			b.WriteString("-" + names[end-1][head:])
		}
		i = end
	}
}

// padded is a number as ExpandNodes writes it in a range whose first number has so many digits.
func padded(n, width int) string {
	s := strconv.Itoa(n)
	return strings.Repeat("0", max(width-len(s), 0)) + s
}
