package child

import (
	"bytes"
	"io"
)

// Lines takes a child's output. It passes the bytes on to To, unless that is nil, and each line to Each. It never
// fails: a child continues when the disk of its log is full, and must not find its pipe closed because of that.
type Lines struct {
	To   io.Writer
	Each func(line []byte) // without its end
	part []byte
}

// LongestLine bounds the lines that Each gets whole, in bytes.
const LongestLine = 4096

// Write takes bytes with any number of line ends.
func (l *Lines) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		line, more, whole := bytes.Cut(rest, []byte("\n"))
		if l.part = append(l.part, line[:min(len(line), LongestLine)]...); whole {
			l.Each(l.part)
		}
		if whole || len(l.part) > LongestLine {
			l.part = l.part[:0]
		}
		rest = more
	}
	if l.To != nil {
		_, _ = l.To.Write(b)
	}
	return len(b), nil
}

// Capped passes the first Left bytes of a child's output on to To, and then More. It drops the rest, and never fails.
type Capped struct {
	To   io.Writer
	Left int
	More string
}

// Write takes any number of bytes.
func (c *Capped) Write(b []byte) (int, error) {
	if n := min(len(b), c.Left); n > 0 {
		_, _ = c.To.Write(b[:n]) // a log that cannot be written holds up no child
		if c.Left -= n; c.Left == 0 {
			_, _ = io.WriteString(c.To, c.More) // as above
		}
	}
	return len(b), nil
}
