// Smithwaterman aligns two long sequences locally on GPUs: the best scoring pair of a part of each, with gaps. Every
// MPI rank owns a range of columns of the matrix; the right edge of a range streams to the next rank.
//
//	mpirun -np 4 smithwaterman -a lambda.fa -b other.fa -matrix dna -out best.txt
//
// See smithwaterman -help for all flags.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/smithwaterman/align"
	"github.com/holdfast-hpc/holdfast/apps/smithwaterman/fasta"
)

func main() {
	c, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = c.common.Run(context.Background(), "smithwaterman", c.align)
	}
	job.Exit("smithwaterman", err)
}

type config struct {
	common       job.Options
	a, b         string
	matrix       string
	open, extend int
	scoreOnly    bool
}

const usage = `smithwaterman aligns two sequences locally on GPUs (Smith and Waterman, with
affine gaps after Gotoh): it finds the pair of parts, one of each sequence, with
the best score, and writes their alignment letter by letter.

Every MPI rank owns a range of columns of the matrix. It computes
tiles of cells on its device and streams the right edge of its columns to the
next rank, so there are always messages in flight. Start it with mpirun or srun, or
alone with -ranks 1:

  mpirun -np 4 smithwaterman -a input/lambda.fa:1-6000 -b input/lambda.fa:30001-37000
  smithwaterman -ranks 1 -matrix blosum62 -a input/hba.fa -b input/hbb.fa

` + job.Usage + `
All arithmetic is in integers: the result is the same, to the byte, on every device
and for any number of ranks. The devices need about 0.02 bytes for each cell of the
matrix. With -score smithwaterman computes the score alone, in memory that grows with
the lengths of the sequences.
It writes the SHA-256 of the result file to NAME.sha256.

Flags:
`

// parse reads the command line. flag.ErrHelp means that help was asked for and
// printed to w.
func parse(args []string, w io.Writer) (*config, error) {
	var c config
	fs := c.common.Flags("smithwaterman", usage, "`file` for the alignment", w)
	fs.StringVar(&c.a, "a", "",
		"FASTA `file` whose first record is the first sequence; FILE:FROM-TO takes the letters FROM to TO, counted "+
			"from 1")
	fs.StringVar(&c.b, "b", "", "FASTA `file` of the second sequence, likewise")
	fs.StringVar(&c.matrix, "matrix", "dna", "scores of pairs of letters: dna or blosum62")
	fs.IntVar(&c.open, "open", 10, "cost of the first letter of a gap")
	fs.IntVar(&c.extend, "extend", 1, "cost of every further letter of a gap")
	fs.BoolVar(&c.scoreOnly, "score", false, "only the score and where the alignment ends")
	if err := job.Parse(fs, args); err != nil {
		return nil, err
	}
	if c.a == "" || c.b == "" {
		return nil, fmt.Errorf("want -a FILE and -b FILE; see smithwaterman -help")
	}
	return &c, nil
}

type problem struct {
	scoring *align.Scoring
	a, b    align.Named
}

// load reads matrix and sequences. All ranks read the same.
func (c *config) load() (*problem, error) {
	s, err := align.Matrix(c.matrix, c.open, c.extend)
	if err != nil {
		return nil, err
	}
	p := &problem{scoring: s}
	if p.a, err = sequence(c.a, s); err != nil {
		return nil, err
	}
	if p.b, err = sequence(c.b, s); err != nil {
		return nil, err
	}
	return p, s.Fits(min(len(p.a.Codes), len(p.b.Codes)))
}

// places returns where a cell stands in the whole sequences, counted from 1.
func (p *problem) places(c align.Best) (i, j int) {
	return p.a.Before + c.Row + 1, p.b.Before + c.Col + 1
}

// identity names the problem that a checkpoint belongs to.
func (p *problem) identity(scoreOnly bool) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d\n%s %d\n", p.a.Name, p.a.Before, p.b.Name, p.b.Before)
	h.Write(p.a.Codes)
	h.Write([]byte{0xff})
	h.Write(p.b.Codes)
	for _, v := range p.scoring.Pair {
		h.Write([]byte{byte(v), byte(v >> 8)})
	}
	return fmt.Sprintf("sequences %x matrix %s open %d extend %d score %t", h.Sum(nil)[:8], p.scoring.Name,
		p.scoring.Open, p.scoring.Extend, scoreOnly)
}

// sequence reads the first sequence of FILE or FILE:FROM-TO.
func sequence(arg string, s *align.Scoring) (align.Named, error) {
	name, from, to, err := cutRange(arg)
	if err != nil {
		return align.Named{}, err
	}
	f, err := os.Open(name)
	if err != nil {
		return align.Named{}, err
	}
	defer f.Close()
	all, err := fasta.Read(f)
	if err != nil {
		return align.Named{}, fmt.Errorf("%s: %w", name, err)
	}
	if len(all) == 0 {
		return align.Named{}, fmt.Errorf("%s: no sequence in it", name)
	}
	letters := all[0].Letters
	if len(letters) == 0 {
		return align.Named{}, fmt.Errorf("%s: sequence %q has no letters", name, all[0].Name)
	}
	to = cmp.Or(to, len(letters))
	if from > to || to > len(letters) {
		return align.Named{}, fmt.Errorf("%s: letters %d to %d, but it has %d", arg, from, to, len(letters))
	}
	letters = letters[from-1 : to]
	codes, err := s.Encode(letters)
	if err != nil {
		return align.Named{}, fmt.Errorf("%s: %w", arg, err)
	}
	return align.Named{Name: all[0].Name, Letters: letters, Codes: codes, Before: from - 1}, nil
}

// rangeForm is the text after a file's name that takes a part of its letters.
var rangeForm = regexp.MustCompile(`^(.+):([0-9]+)-([0-9]+)$`)

// cutRange splits FILE:FROM-TO; to is 0 without a range.
func cutRange(arg string) (name string, from, to int, err error) {
	f := rangeForm.FindStringSubmatch(arg)
	if f == nil {
		return arg, 1, 0, nil
	}
	from, err1 := strconv.Atoi(f[2])
	to, err2 := strconv.Atoi(f[3])
	if err1 != nil || err2 != nil || from < 1 || to < from {
		return "", 0, 0, fmt.Errorf("%q: want FILE or FILE:FROM-TO with 1 <= FROM <= TO", arg)
	}
	return f[1], from, to, nil
}
