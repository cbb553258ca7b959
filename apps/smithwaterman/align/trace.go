package align

// A Block is a rectangle of the matrix with the values on its borders. A block
// at the edge of the matrix has 0 and Low there.
type Block struct {
	A, B       []byte  // codes of its rows and columns
	TopH, TopF []int32 // above its first row, per column
	LeftH      []int32 // left of its first column, per row
	LeftE      []int32
	Corner     int32 // H above and left of its first cell
}

// Whole returns the block of all of two sequences.
func Whole(a, b []byte) *Block {
	k := &Block{A: a, B: b, TopH: make([]int32, len(b)), TopF: make([]int32, len(b)),
		LeftH: make([]int32, len(a)), LeftE: make([]int32, len(a))}
	for j := range k.TopF {
		k.TopF[j] = Low
	}
	for i := range k.LeftE {
		k.LeftE[i] = Low
	}
	return k
}

// A cell's direction: where H comes from, and whether its gaps are opened there.
const (
	stop     = 0
	diagonal = 1
	fromE    = 2
	fromF    = 3
	source   = 3 // mask
	opensE   = 4
	opensF   = 8
)

// A Best is the cell with the best score, with row and column counted from 0.
type Best struct {
	Score    int32
	Row, Col int
}

// Better reports whether b is to be preferred to c.
func (b Best) Better(c Best) bool {
	if b.Score != c.Score {
		return b.Score > c.Score
	}
	if b.Row != c.Row {
		return b.Row < c.Row
	}
	return b.Col < c.Col
}

// A Map holds the direction of every cell of a block.
type Map struct {
	cols int
	dir  []byte
	Best Best // within the block
}

// Fill computes the block, len(A)·len(B) steps and bytes. It uses up TopH and
// TopF: they are then the values of the last row.
func (s *Scoring) Fill(k *Block) *Map {
	m := &Map{cols: len(k.B), dir: make([]byte, len(k.A)*len(k.B))}
	above := k.Corner // H above and left of the row's first cell
	for i, a := range k.A {
		pair := s.Pair[int(a)*Letters : int(a)*Letters+Letters]
		h, e, diag := k.LeftH[i], k.LeftE[i], above
		above = k.LeftH[i]
		for j, b := range k.B {
			up := k.TopH[j]
			var d byte
			e, d = gap(h, e, s.Open, s.Extend, opensE, 0)
			f, d := gap(up, k.TopF[j], s.Open, s.Extend, opensF, d)
			h, d = choose(diag+pair[b], e, f, d)
			m.dir[i*m.cols+j] = d
			if c := (Best{h, i, j}); c.Better(m.Best) {
				m.Best = c
			}
			k.TopH[j], k.TopF[j], diag = h, f, up
		}
	}
	return m
}

// gap returns the value of a gap after a cell with value h and gap value g, and
// d with the flag if it is opened there.
func gap(h, g, open, extend int32, flag, d byte) (int32, byte) {
	if h-open >= g-extend {
		return h - open, d | flag
	}
	return g - extend, d
}

// choose returns H and d with where it comes from.
func choose(diag, e, f int32, d byte) (int32, byte) {
	h, from := int32(0), byte(stop)
	if diag > h {
		h, from = diag, diagonal
	}
	if e > h {
		h, from = e, fromE
	}
	if f > h {
		h, from = f, fromF
	}
	return h, d | from
}

// State is the state of a walk: in the matrix H, or in a gap.
type State byte

// The states of a walk, and the two that end it.
const (
	InH  State = iota
	InE        // in a gap that letters of b stand against
	InF        // in a gap that letters of a stand against
	Done       // the alignment begins after this cell
)

// An Op is one column of an alignment.
type Op byte

// The columns of an alignment.
const (
	Pair Op = 'M' // a letter of each
	GapA Op = 'I' // a letter of b against a gap in a
	GapB Op = 'D' // a letter of a against a gap in b
)

// A Walk goes back through the matrix from an end of an alignment. Row and Col
// are relative to the block it is in; -1 is outside.
type Walk struct {
	Row, Col int
	State    State
	Ops      []Op // from the end to the beginning
}

// Back follows the directions until the walk leaves the block or is done.
func (m *Map) Back(w *Walk) {
	for w.Row >= 0 && w.Col >= 0 && w.State != Done {
		d := m.dir[w.Row*m.cols+w.Col]
		switch w.State {
		case InH:
			w.fromH(d & source)
		case InE:
			w.Ops = append(w.Ops, GapA)
			if d&opensE != 0 {
				w.State = InH
			}
			w.Col--
		case InF:
			w.Ops = append(w.Ops, GapB)
			if d&opensF != 0 {
				w.State = InH
			}
			w.Row--
		}
	}
}

func (w *Walk) fromH(from byte) {
	switch from {
	case stop:
		w.State = Done
	case diagonal:
		w.Ops = append(w.Ops, Pair)
		w.Row, w.Col = w.Row-1, w.Col-1
	case fromE:
		w.State = InE
	case fromF:
		w.State = InF
	}
}
