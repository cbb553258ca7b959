package scale

import "github.com/holdfast-hpc/holdfast/coordinated/cut"

// Votes is what it takes to collect one blob of every rank at rank 0 and to give
// all of them to all ranks: the vote on an epoch.
type Votes struct {
	Ranks     int
	BlobBytes int
	Same      bool  // all ranks say the same, as when all is well
	Up        int64 // bytes of the message that rank 0's last child sends up, the largest
	Down      int64 // bytes that every rank receives
	PeakBytes int64 // sent and received by the rank with most of them
}

// Vote gathers and publishes blobs of that many bytes on the tree.
func Vote(ranks, fanout, blobBytes int, same bool) Votes {
	v := Votes{Ranks: ranks, BlobBytes: blobBytes, Same: same}

	traffic := make([]int64, ranks)
	gathers := make([]*cut.Gather, ranks)
	for i := ranks - 1; i >= 0; i-- {
		parent, children := cut.Place(i, ranks, fanout)
		if gathers[i] == nil {
			gathers[i] = cut.NewGather(len(children))
		}
		up, _ := gathers[i].Add(i, 1, "vote", []cut.Blob{cut.Blob{Rank: i, Data: ballot(i, blobBytes, same)}})
		if parent < 0 {
			v.publish(up, traffic, fanout)
			break
		}
		n := int64(len(up.Append(nil)))
		v.Up = max(v.Up, n)
		traffic[i] += n
		traffic[parent] += n
		if gathers[parent] == nil {
			_, siblings := cut.Place(parent, ranks, fanout)
			gathers[parent] = cut.NewGather(len(siblings))
		}
		gathers[parent].Add(i, 1, "vote", up.Blobs)
		gathers[i] = nil
	}
	return v
}

func (v *Votes) publish(m cut.Message, traffic []int64, fanout int) {
	m.Kind = cut.KindPublish
	v.Down = int64(len(m.Append(nil)))
	for i := range traffic {
		parent, children := cut.Place(i, len(traffic), fanout)
		traffic[i] += v.Down * int64(len(children))
		if parent >= 0 {
			traffic[i] += v.Down
		}
		v.PeakBytes = max(v.PeakBytes, traffic[i])
	}
}

// ballot returns a rank's blob.
func ballot(rank, n int, same bool) []byte {
	b := make([]byte, n)
	for i := range b {
		if !same {
			b[i] = byte(rank >> (8 * (i % 4)))
		}
	}
	return b
}
