package vote

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestBriefCommits: who hears the votes on manifests in brief learns what who hears all of them does, of however many
// ranks, and brief of what is brief is the same.
func TestBriefCommits(t *testing.T) {
	yes := func(have ...storage.Epoch) []byte { return (&Commit{Have: have}).Encode() }
	no := (&Commit{Err: errors.New("no room")}).Encode()
	other := (&Commit{ByOther: true}).Encode()
	for name, votes := range map[string][][]byte{
		"all have two":     {yes(7, 6), other, yes(7, 6), other},
		"one lacks one":    {yes(7, 6), other, yes(7)},
		"rank 0 lacks one": {yes(7), yes(7, 6, 5)},
		"none in common":   {yes(7), yes(6)},
		"one cannot":       {yes(7, 6), other, no},
		"rank 0 cannot":    {no, other, yes(7, 6)},
		"no vote":          {yes(7), nil},
		"malformed":        {yes(7), {votesYes, 0x80}, no},
		"rank 0 as one":    {other, yes(7)},
		"long":             {yes(7), (&Commit{Err: errors.New(strings.Repeat("x", 1<<20))}).Encode()},
	} {
		var all []cut.Blob
		for r, v := range votes {
			all = append(all, cut.Blob{Rank: r, Data: v})
		}
		brief := BriefCommits(all)
		want, err := DecodeCommits("commit", all, nil)
		got, berr := DecodeCommits("commit", brief, nil)
		if !slices.Equal(got, want) || (err == nil) != (berr == nil) ||
			err != nil && name != "long" && err.Error() != berr.Error() {
			t.Errorf("%s: got %v, %v in brief, want %v, %v", name, got, berr, want, err)
		}
		if !reflect.DeepEqual(BriefCommits(brief), brief) {
			t.Errorf("%s: brief of brief is something else", name)
		}
		for r, b := range brief[1:] {
			if err == nil && !bytes.Equal(b.Data, other) || len(b.Data) > mostReason+1 {
				t.Errorf("%s: rank %d is told in %d bytes", name, r+1, len(b.Data))
			}
		}
	}
}
