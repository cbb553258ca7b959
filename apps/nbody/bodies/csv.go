package bodies

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// columns are the numbers of a body in a file, in the order Write uses.
var columns = []string{"mass", "x", "y", "z", "vx", "vy", "vz"}

// A FormatError says where a file of bodies is not what Read expects.
type FormatError struct {
	Line int // 1-based
	Err  error
}

// Error names the line and what is wrong with it.
func (e *FormatError) Error() string { return fmt.Sprintf("bodies: line %d: %v", e.Line, e.Err) }

// Unwrap returns the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// ErrUnits means that a file does not say in which units it is.
var ErrUnits = errors.New("no units stated: begin the file with a line " +
	`"# units: solar", "# units: si" or "# units: nbody"`)

// Read reads bodies from CSV. Lines that begin with # are comments; one of them,
// before the first record, states the units:
//
//	# units: solar
//	name,mass,x,y,z,vx,vy,vz
//	Sun,1,0,0,0,0,0,0
//
// The first other line names the columns: mass, x, y, z, vx, vy, vz in any
// order, and optionally name. A *FormatError names the line that is wrong.
func Read(r io.Reader) (*System, error) {
	in := bufio.NewReader(r)
	units, skipped, err := readPreamble(in)
	if err != nil {
		return nil, err
	}
	sc, err := scaleOf(units)
	if err != nil {
		return nil, &FormatError{skipped, err}
	}
	records := csv.NewReader(in)
	records.Comment = '#'
	records.TrimLeadingSpace = true
	records.ReuseRecord = true
	d := decoder{csv: records, skipped: skipped, scale: sc}
	return d.read()
}

// readPreamble reads the comments at the start of a file and returns the units
// stated there and the number of lines read.
func readPreamble(in *bufio.Reader) (Units, int, error) {
	var units Units
	for lines := 0; ; lines++ {
		next, err := in.Peek(1)
		if err != nil && err != io.EOF {
			return "", 0, fmt.Errorf("read bodies: %w", err)
		}
		if len(next) == 0 || next[0] != '#' {
			if units == "" {
				return "", 0, &FormatError{lines + 1, ErrUnits}
			}
			return units, lines, nil
		}
		line, err := in.ReadString('\n')
		if err != nil && err != io.EOF {
			return "", 0, fmt.Errorf("read bodies: %w", err)
		}
		if u, ok := strings.CutPrefix(strings.TrimSpace(line[1:]), "units:"); ok {
			units = Units(strings.TrimSpace(u))
		}
	}
}

// A decoder reads the records of a file.
type decoder struct {
	csv     *csv.Reader
	skipped int // lines before the header
	scale   scale
	at      []int // column of each of columns
	name    int   // column of the name, or -1
}

func (d *decoder) read() (*System, error) {
	header, err := d.csv.Read()
	if err != nil {
		return nil, &FormatError{d.skipped + 1, fmt.Errorf("no line with the names of the columns: %w", err)}
	}
	if err := d.locate(header); err != nil {
		return nil, d.wrap(err)
	}
	s := &System{Units: d.scale.units}
	for {
		record, err := d.csv.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, d.wrap(err)
		}
		if err := d.body(s, record); err != nil {
			return nil, d.wrap(err)
		}
	}
	if s.Len() == 0 {
		return nil, &FormatError{d.skipped + 1, errors.New("no bodies in the file")}
	}
	return s, nil
}

// wrap adds to err the line of the record read last.
func (d *decoder) wrap(err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return &FormatError{d.skipped + parse.Line, parse.Err}
	}
	line, _ := d.csv.FieldPos(0)
	return &FormatError{d.skipped + line, err}
}

// locate finds the columns by their names.
func (d *decoder) locate(header []string) error {
	found := map[string]int{}
	for i, h := range header {
		h = strings.TrimSpace(h)
		if _, twice := found[h]; twice {
			return fmt.Errorf("column %q is there twice", h)
		}
		found[h] = i
	}
	d.at = d.at[:0]
	for _, c := range columns {
		i, ok := found[c]
		if !ok {
			return fmt.Errorf("no column %q among %q", c, header)
		}
		d.at = append(d.at, i)
	}
	d.name = -1
	if i, ok := found["name"]; ok {
		d.name = i
	}
	return nil
}

// body appends one record to s.
func (d *decoder) body(s *System, record []string) error {
	var v [7]float64
	for k, i := range d.at {
		x, err := strconv.ParseFloat(strings.TrimSpace(record[i]), 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("column %q: %q is not a finite number", columns[k], record[i])
		}
		v[k] = x
	}
	if v[0] < 0 {
		return fmt.Errorf("negative mass %g", v[0])
	}
	i := s.Len()
	s.Pos = append(s.Pos, 0, 0, 0, 0)
	s.Vel = append(s.Vel, 0, 0, 0, 0)
	l, u := d.scale.length, d.scale.velocity
	pos, vel := [3]float64{v[1] * l, v[2] * l, v[3] * l}, [3]float64{v[4] * u, v[5] * u, v[6] * u}
	s.Set(i, v[0]*d.scale.mass, pos, vel)
	for _, x := range append(s.Pos[4*i:4*i+4:4*i+4], s.Vel[4*i:]...) {
		if math.IsInf(float64(x), 0) {
			return errors.New("a number is too large for single precision; use larger units")
		}
	}
	if d.name >= 0 {
		s.Names = append(s.Names, record[d.name])
	}
	return nil
}

// Write writes s as CSV that Read reads back bit for bit, with comments, one
// per line, after the line that states the units. Equal systems and comments
// give equal bytes.
func (s *System) Write(w io.Writer, comments ...string) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "# units: %s\n", s.Units)
	for _, c := range comments {
		fmt.Fprintf(out, "# %s\n", c)
	}
	if s.Names != nil {
		out.WriteString("name,")
	}
	out.WriteString(strings.Join(columns, ",") + "\n")
	var line []byte
	for i := range s.Len() {
		line = line[:0]
		if s.Names != nil {
			line = append(append(line, quoted(s.Names[i])...), ',')
		}
		line = appendNumbers(line, s.Pos[4*i+3], s.Pos[4*i], s.Pos[4*i+1], s.Pos[4*i+2],
			s.Vel[4*i], s.Vel[4*i+1], s.Vel[4*i+2])
		out.Write(line)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write bodies: %w", err)
	}
	return nil
}

// quoted is a name as a field of CSV that reads back as it is.
func quoted(name string) string {
	if name == strings.TrimSpace(name) && !strings.ContainsAny(name, ",\"\r\n#") {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// appendNumbers appends the shortest decimals that read back as the same
// float32, separated by commas, and a line end.
func appendNumbers(line []byte, numbers ...float32) []byte {
	for i, x := range numbers {
		if i > 0 {
			line = append(line, ',')
		}
		line = strconv.AppendFloat(line, float64(x), 'g', -1, 32)
	}
	return append(line, '\n')
}
