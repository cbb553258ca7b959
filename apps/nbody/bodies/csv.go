package bodies

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// columns are the numbers of a body in a file, in this order.
var columns = []string{"mass", "x", "y", "z", "vx", "vy", "vz"}

// Read reads bodies from CSV, as Write writes it: the first line names the columns, every further one is a body, and
// lines that begin with # are comments. An error names the line that is wrong.
func Read(r io.Reader) (*System, error) {
	in := csv.NewReader(bufio.NewReader(r))
	in.Comment, in.ReuseRecord = '#', true
	if head, err := in.Read(); err != nil || !slices.Equal(head, columns) {
		return nil, errors.Join(fmt.Errorf("bodies: the file does not begin with a line of the columns %s",
			strings.Join(columns, ",")), err)
	}
	s := &System{}
	for {
		record, err := in.Read()
		switch {
		case err == io.EOF && s.Len() == 0:
			return nil, errors.New("bodies: none in the file")
		case err == io.EOF:
			return s, nil
		case err != nil:
			return nil, fmt.Errorf("bodies: %w", err)
		}
		if err := s.add(record); err != nil {
			line, _ := in.FieldPos(0)
			return nil, fmt.Errorf("bodies: line %d: %w", line, err)
		}
	}
}

func (s *System) add(record []string) error {
	var v [7]float32
	for k, text := range record {
		x, err := strconv.ParseFloat(text, 32)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("column %q: %q is not a finite number of single precision", columns[k], text)
		}
		v[k] = float32(x)
	}
	if v[0] < 0 {
		return fmt.Errorf("negative mass %g", v[0])
	}
	s.Pos = append(s.Pos, v[1], v[2], v[3], v[0])
	s.Vel = append(s.Vel, v[4], v[5], v[6], 0)
	return nil
}

// Write writes s as CSV that Read reads back bit for bit, after comments, one a
// line. Equal systems and comments give equal bytes.
func (s *System) Write(w io.Writer, comments ...string) error {
	out := bufio.NewWriter(w)
	for _, c := range comments {
		fmt.Fprintf(out, "# %s\n", c)
	}
	out.WriteString(strings.Join(columns, ",") + "\n")
	var line []byte
	for i := range s.Len() {
		line = line[:0]
		for k, x := range [7]float32{s.Pos[4*i+3], s.Pos[4*i], s.Pos[4*i+1], s.Pos[4*i+2],
			s.Vel[4*i], s.Vel[4*i+1], s.Vel[4*i+2]} {
			if k > 0 {
				line = append(line, ',')
			}
			line = strconv.AppendFloat(line, float64(x), 'g', -1, 32) // the shortest that reads back as the same
		}
		out.Write(append(line, '\n'))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write bodies: %w", err)
	}
	return nil
}
