package align

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Letters is the size of the alphabet that sequences are encoded in.
const Letters = 32

// Low is the value of E and F outside the matrix: so low that it never wins, and
// far enough from the smallest int32 that it cannot wrap around.
const Low = -1 << 29

// A Scoring has the scores of pairs of letters and of gaps.
type Scoring struct {
	Name string
	// Pair holds the score of two codes at code of a · Letters + code of b.
	Pair         [Letters * Letters]int32
	Open, Extend int32 // cost of the first and of every further letter of a gap

	code  [256]int8 // of a letter; -1 = not in the alphabet
	upper []byte    // letters by code
}

//go:embed blosum62.txt
var blosum62 string

//go:embed dna.txt
var dna string

// Matrix returns the scoring with the matrix called "blosum62" or "dna", which are in the form of NCBI's: lines
// that begin with # are comments, the first other line names the columns, and every further one begins with the letter
// of its row.
func Matrix(name string, open, extend int) (*Scoring, error) {
	text, ok := map[string]string{"blosum62": blosum62, "dna": dna}[strings.ToLower(name)]
	switch {
	case !ok:
		return nil, fmt.Errorf("scoring matrix %q: want blosum62 or dna", name)
	case extend < 0 || open < extend || open > 1<<20:
		return nil, fmt.Errorf("gap costs %d and %d: want 0 <= extend <= open", open, extend)
	}
	s := &Scoring{Name: name, Open: int32(open), Extend: int32(extend)}
	for i := range s.code {
		s.code[i] = -1
	}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0][0] == '#':
		case s.upper == nil:
			for i, f := range fields {
				s.code[f[0]] = int8(i)
				s.upper = append(s.upper, f[0])
			}
		default:
			row := s.Pair[int(s.code[fields[0][0]])*Letters:]
			for b, f := range fields[1:] {
				v, err := strconv.ParseInt(f, 10, 16)
				if err != nil {
					return nil, fmt.Errorf("scoring matrix %s: %w", name, err)
				}
				row[b] = int32(v)
			}
		}
	}
	return s, nil
}

// Fits returns an error if alignments of this number of letters could score more than
// int32 holds, with room for a step beyond.
func (s *Scoring) Fits(letters int) error {
	most := int64(max(slices.Max(s.Pair[:]), 0))
	if worth := most * int64(letters); worth > -Low {
		return fmt.Errorf("%d letters of up to %d each in matrix %s may score %d, at most %d can be held: align parts",
			letters, most, s.Name, worth, -Low)
	}
	return nil
}

// Encode returns the codes of letters, or an error that names the first letter
// the matrix does not have.
func (s *Scoring) Encode(letters []byte) ([]byte, error) {
	codes := make([]byte, len(letters))
	for i, c := range letters {
		code := s.code[c]
		if code < 0 {
			return nil, fmt.Errorf("letter %q at place %d is not in matrix %s, which has %s", c, i+1, s.Name, s.upper)
		}
		codes[i] = byte(code)
	}
	return codes, nil
}
