package align

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Letters is the size of the alphabet that sequences are encoded in.
const Letters = 32

// Low is the value of E and F outside the matrix: so low that it never wins, and
// far enough from the smallest int32 that it cannot wrap around.
const Low = -1 << 29

// A Scoring says what pairs of letters and gaps are worth.
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

// Matrix returns the scoring with a matrix by name, "blosum62" or "dna", or
// from a file in the form of NCBI's matrices: lines that begin with # are
// comments, the first other line names the columns, and every further one begins
// with the letter of its row.
func Matrix(name string, open, extend int) (*Scoring, error) {
	var text io.Reader
	switch strings.ToLower(name) {
	case "blosum62":
		text = strings.NewReader(blosum62)
	case "dna":
		text = strings.NewReader(dna)
	default:
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("scoring matrix: %w (known by name are blosum62 and dna)", err)
		}
		defer f.Close()
		text = f
	}
	if extend < 0 || open < extend || open > 1<<20 {
		return nil, fmt.Errorf("gap costs %d and %d: want 0 <= extend <= open", open, extend)
	}
	s := &Scoring{Name: name, Open: int32(open), Extend: int32(extend)}
	if err := s.read(text); err != nil {
		return nil, fmt.Errorf("scoring matrix %s: %w", name, err)
	}
	return s, nil
}

// read parses a matrix.
func (s *Scoring) read(r io.Reader) error {
	for i := range s.code {
		s.code[i] = -1
	}
	lines := bufio.NewScanner(r)
	seen := map[byte]bool{}
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0 || fields[0][0] == '#':
		case s.upper == nil:
			if err := s.alphabet(fields); err != nil {
				return err
			}
		default:
			if err := s.row(fields); err != nil {
				return err
			}
			seen[fields[0][0]] = true
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if len(s.upper) == 0 || len(seen) != len(s.upper) {
		return fmt.Errorf("%d columns but %d rows", len(s.upper), len(seen))
	}
	return nil
}

// alphabet takes the line that names the columns.
func (s *Scoring) alphabet(fields []string) error {
	if len(fields) > Letters {
		return fmt.Errorf("%d letters, at most %d are possible", len(fields), Letters)
	}
	for i, f := range fields {
		if len(f) != 1 || s.code[f[0]] >= 0 {
			return fmt.Errorf("column %q is not a letter of its own", f)
		}
		s.code[f[0]] = int8(i)
		s.upper = append(s.upper, f[0])
	}
	return nil
}

// row takes the scores of one letter.
func (s *Scoring) row(fields []string) error {
	a := s.code[fields[0][0]]
	if len(fields[0]) != 1 || a < 0 {
		return fmt.Errorf("row %q is not one of the columns", fields[0])
	}
	if len(fields) != len(s.upper)+1 {
		return fmt.Errorf("row %q has %d scores, want %d", fields[0], len(fields)-1, len(s.upper))
	}
	for b, f := range fields[1:] {
		v, err := strconv.ParseInt(f, 10, 16)
		if err != nil {
			return fmt.Errorf("row %q: %q is not a small whole number", fields[0], f)
		}
		s.Pair[int(a)*Letters+b] = int32(v)
	}
	return nil
}

// Fits is an error if alignments of so many letters could score more than the
// arithmetic holds: int32, with room for a step beyond.
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
