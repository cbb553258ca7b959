package vote

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestBriefPuts: who hears votes in brief fails the epoch exactly when who hears them whole does, for the same
// reason, and hears a few bytes of a yes.
func TestBriefPuts(t *testing.T) {
	infos := []storage.ShardInfo{{Rank: 1, Node: "n", ShardBytes: 8192}, {Rank: 2, Node: "n", ShardBytes: 4096}}
	yes := EncodePut(infos, nil)
	for name, v := range map[string][]byte{
		"yes":       yes,
		"no shards": EncodePut(nil, nil),
		"no":        EncodePut(infos, errors.New("no room")),
		"uncaught":  EncodePut(nil, Uncaptured(errors.New("no memory"))),
		"nothing":   nil,
		"no text":   {1},
		"cut off":   yes[:len(yes)-1],
	} {
		whole, err := DecodePuts("write", []cut.Blob{{Rank: 0, Data: yes}, {Rank: 1, Data: v}}, nil)
		brief := BriefPuts([]cut.Blob{{Rank: 0, Data: yes}, {Rank: 1, Data: v}})
		some, berr := DecodePuts("write", brief, nil)
		if (err == nil) != (berr == nil) || (err != nil && err.Error() != berr.Error()) {
			t.Errorf("%s: got %v in brief, want %v", name, berr, err)
		}
		if NothingToWrite(err) != NothingToWrite(berr) {
			t.Errorf("%s: in brief the ranks disagree on whether there is anything to write", name)
		}
		if err == nil && (len(whole) < 2 || len(some) != 0 || len(brief[1].Data) != 1) {
			t.Errorf("%s: got %d shards, and %d in brief", name, len(whole), len(some))
		}
	}
	long := briefPut(EncodePut(nil, errors.New(strings.Repeat("x", 1<<20))))
	if len(long) > mostReason {
		t.Errorf("a reason of %d bytes is told to all", len(long))
	}
}
