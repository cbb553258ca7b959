package agent

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
)

// told is a plane that notes the longest outcome that each rank gets.
type told struct {
	connect.Plane
	mu   *sync.Mutex
	most map[int]int // guarded by mu
}

func (p *told) Send(to int, payload []byte) error {
	if m, err := cut.Decode(payload); err == nil && m.Kind == cut.KindPublish {
		p.mu.Lock()
		p.most[to] = max(p.most[to], len(payload))
		p.mu.Unlock()
	}
	return p.Plane.Send(to, payload)
}

// TestBrief: ranks that need no more hear in brief what the others have said, and only those hear all of it that need
// it or lie on the way to one that does.
func TestBrief(t *testing.T) {
	const n = 9 // ranks on two nodes in turn: 0 2 4 6 8, and 1 3 5 7
	var mu sync.Mutex
	most := map[int]int{}
	all := start(t, connecttest.NewNet(n), n, func(o *Options) { o.Plane = &told{o.Plane, &mu, most} })
	whole := func(rank int) bool { return rank < 2 || rank == 6 }
	say := func(rank int) []byte { return bytes.Repeat([]byte{byte('a' + rank)}, 1000) }
	err := each(all, func(x *one) (err error) {
		me := x.Topology.Rank
		blobs, err := x.Meet(t.Context(), cut.Meeting{Epoch: 1, Stage: "stage", Data: say(me), Whole: whole,
			Brief: func(all []cut.Blob) (brief []cut.Blob) {
				for _, b := range all {
					brief = append(brief, cut.Blob{Rank: b.Rank, Data: b.Data[:1]})
				}
				return brief
			}})
		if err != nil || len(blobs) != n {
			return fmt.Errorf("rank %d: got %d of %d, %w", me, len(blobs), n, err)
		}
		for r, b := range blobs {
			want := say(r)
			if !whole(me) {
				want = want[:1]
			}
			if b.Rank != r || !bytes.Equal(b.Data, want) {
				err = errors.Join(err, fmt.Errorf("rank %d: got %d bytes of rank %d, want %d of %d", me, len(b.Data),
					b.Rank, len(want), r))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for rank, bytes := range most { // rank 2 leads to rank 6
		if all := bytes > n*1000; all != (whole(rank) || rank == 2) {
			t.Errorf("rank %d is told %d bytes, all of it is %d", rank, bytes, n*1000)
		}
	}
	if len(most) != n-1 {
		t.Errorf("%d ranks were told, want %d", len(most), n-1)
	}
}
