package align

import (
	"bufio"
	"fmt"
	"io"
	"slices"
)

// An Alignment is the part of two sequences that is aligned.
type Alignment struct {
	Score int32
	A, B  int  // begins of the part, from 0
	Ops   []Op // from the beginning
}

// Local aligns two encoded sequences on the host, with len(a)·len(b) bytes of
// memory.
func (s *Scoring) Local(a, b []byte) *Alignment {
	m := s.Fill(Whole(a, b))
	w := &Walk{Row: m.Best.Row, Col: m.Best.Col}
	m.Back(w)
	return FromWalk(m.Best.Score, w)
}

// FromWalk returns the alignment that a walk through whole sequences has found.
func FromWalk(score int32, w *Walk) *Alignment {
	ops := slices.Clone(w.Ops)
	slices.Reverse(ops)
	return &Alignment{Score: score, A: w.Row + 1, B: w.Col + 1, Ops: ops}
}

// Rescore computes the score of the alignment from its columns alone.
func (al *Alignment) Rescore(s *Scoring, a, b []byte) int32 {
	var score int32
	i, j, last := al.A, al.B, Pair
	for _, op := range al.Ops {
		switch {
		case op == Pair:
			score += s.Pair[int(a[i])*Letters+int(b[j])]
		case op == last:
			score -= s.Extend
		default:
			score -= s.Open
		}
		if op != GapA {
			i++
		}
		if op != GapB {
			j++
		}
		last = op
	}
	return score
}

// Counts are how often each kind of column occurs.
type Counts struct{ Columns, Identical, Similar, Gaps int }

// Count counts the columns; similar ones score above 0, identical ones too.
func (al *Alignment) Count(s *Scoring, a, b []byte) Counts {
	c := Counts{Columns: len(al.Ops)}
	i, j := al.A, al.B
	for _, op := range al.Ops {
		switch op {
		case Pair:
			if a[i] == b[j] {
				c.Identical++
			}
			if s.Pair[int(a[i])*Letters+int(b[j])] > 0 {
				c.Similar++
			}
			i, j = i+1, j+1
		case GapA:
			j, c.Gaps = j+1, c.Gaps+1
		case GapB:
			i, c.Gaps = i+1, c.Gaps+1
		}
	}
	return c
}

// A Named is an encoded sequence with its name.
type Named struct {
	Name    string
	Letters []byte
	Codes   []byte
	Before  int // letters of the sequence in front of these
}

// lineColumns is how many columns of an alignment stand on a line.
const lineColumns = 60

// Write writes the alignment for people: a heading with the scores, then the
// sequences one above the other, with | between identical letters, : between
// similar ones and a dot otherwise. Places count from 1, in the whole sequences.
func (al *Alignment) Write(w io.Writer, s *Scoring, a, b Named) error {
	out := bufio.NewWriter(w)
	c := al.Count(s, a.Codes, b.Codes)
	fmt.Fprintf(out, "# 1: %s\n# 2: %s\n# Matrix: %s\n# Gap: %d, then %d\n", a.Name, b.Name, s.Name, s.Open, s.Extend)
	fmt.Fprintf(out, "# Length: %d\n# Identity: %s\n# Similarity: %s\n# Gaps: %s\n# Score: %d\n",
		c.Columns, share(c.Identical, c.Columns), share(c.Similar, c.Columns), share(c.Gaps, c.Columns), al.Score)
	top, mid, bottom := al.rows(s, a, b)
	i, j := a.Before+al.A, b.Before+al.B
	wide := max(len(a.Name), len(b.Name), 5)
	for at := 0; at < len(top); at += lineColumns {
		end := min(at+lineColumns, len(top))
		ni, nj := i+letters(top[at:end]), j+letters(bottom[at:end])
		fmt.Fprintf(out, "\n%-*s %9d %s %d\n", wide, a.Name, i+1, top[at:end], ni)
		fmt.Fprintf(out, "%-*s %9s %s\n", wide, "", "", mid[at:end])
		fmt.Fprintf(out, "%-*s %9d %s %d\n", wide, b.Name, j+1, bottom[at:end], nj)
		i, j = ni, nj
	}
	return out.Flush()
}

func share(part, of int) string {
	if of == 0 {
		return "0/0"
	}
	return fmt.Sprintf("%d/%d (%.1f%%)", part, of, 100*float64(part)/float64(of))
}

// letters counts everything but gaps.
func letters(row []byte) int {
	n := 0
	for _, c := range row {
		if c != '-' {
			n++
		}
	}
	return n
}

// rows returns the three lines of the whole alignment.
func (al *Alignment) rows(s *Scoring, a, b Named) (top, mid, bottom []byte) {
	i, j := al.A, al.B
	for _, op := range al.Ops {
		x, y, m := byte('-'), byte('-'), byte(' ')
		if op == Pair {
			m = '.'
			if s.Pair[int(a.Codes[i])*Letters+int(b.Codes[j])] > 0 {
				m = ':'
			}
			if a.Codes[i] == b.Codes[j] {
				m = '|'
			}
		}
		if op != GapA {
			x = a.Letters[i]
			i++
		}
		if op != GapB {
			y = b.Letters[j]
			j++
		}
		top, mid, bottom = append(top, x), append(mid, m), append(bottom, y)
	}
	return top, mid, bottom
}
