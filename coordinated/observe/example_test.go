package observe_test

import (
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/observe"
	"github.com/holdfast-hpc/holdfast/internal/job"
)

// The daemons of two nodes report on a rank each, and holdfast run sums up.
func Example() {
	j := observe.New(time.Minute)
	for rank := range 2 {
		j.Take([]observe.Rank{{RankStatus: job.RankStatus{Rank: rank}, Size: 2, Sent: 100, Moments: 5}})
	}
	fmt.Println(j.Summary())
	// Output:
	// 2 of 2 rank(s) were watched: 200 messages
	// a checkpoint would have been refused at none of 10 moments
}
