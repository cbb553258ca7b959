// Package outcome joins the errors of an operation on all ranks: it fails for all if it failed for one, with a
// RanksError that names the ranks and has each reason once.
package outcome

import (
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
)

// RanksError reports that a collective operation failed on some ranks. It unwraps to the error of this rank, if it is
// one of them.
type RanksError struct {
	Op     string
	Failed []RankFailure // in order of rank
	Err    error         // this rank's own error, or nil

	all bool // it failed on every rank
}

// RankFailure has one rank's report.
type RankFailure struct {
	Rank int
	Text string
}

// Error gives each reason once, with the ranks that have it unless all have.
func (e *RanksError) Error() string {
	var b strings.Builder
	var texts []string
	who := map[string][]int{}
	for _, f := range e.Failed {
		if who[f.Text] == nil {
			texts = append(texts, f.Text)
		}
		who[f.Text] = append(who[f.Text], f.Rank)
	}
	if len(texts) == 1 {
		return e.Op + ": " + e.only(who[texts[0]]) + texts[0]
	}
	fmt.Fprintf(&b, "%s failed on %d rank(s)", e.Op, len(e.Failed))
	const most = 4
	for i, text := range texts {
		if i == most {
			fmt.Fprintf(&b, "; and %d more reasons", len(texts)-most)
			break
		}
		fmt.Fprintf(&b, "; %s: %s", named(who[text]), text)
	}
	return b.String()
}

// only is "ranks 0,2: ", and nothing for all ranks.
func (e *RanksError) only(ranks []int) string {
	if e.all {
		return ""
	}
	return named(ranks) + ": "
}

func named(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + Ranks(ranks)
	}
	return "ranks " + Ranks(ranks)
}

// Unwrap returns the cause.
func (e *RanksError) Unwrap() error { return e.Err }

// Ranks writes a list of ranks, shortened.
func Ranks(rs []int) string {
	const most = 8
	var b strings.Builder
	for i, r := range rs {
		if i == most {
			fmt.Fprintf(&b, ",… (%d in all)", len(rs))
			break
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, r)
	}
	return b.String()
}

// Check passes every rank's report to read, which returns an error's text.
func Check(op string, blobs []cut.Blob, own error, read func(i int, b []byte) (wrong string)) error {
	texts := make([]string, len(blobs))
	for i, b := range blobs {
		texts[i] = read(i, b.Data)
	}
	return Failed(op, texts, own)
}

// Failed returns a *RanksError when any text is not empty.
func Failed(op string, texts []string, own error) error {
	var failed []RankFailure
	for r, t := range texts {
		if t != "" {
			failed = append(failed, RankFailure{Rank: r, Text: t})
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return &RanksError{Op: op, Failed: failed, Err: own, all: len(failed) == len(texts)}
}

// Encode returns the report of a rank with nothing but its error: the text, or nothing.
func Encode(err error) []byte {
	if err == nil {
		return nil
	}
	return []byte(err.Error())
}

// Decode returns an error with the reports that the ranks made by Encode.
func Decode(op string, blobs []cut.Blob, own error) error {
	return Check(op, blobs, own, func(_ int, b []byte) string { return string(b) })
}
