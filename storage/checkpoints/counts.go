package checkpoints

import "strings"

// Counts says what stands in the way of restoring an epoch by another number of ranks than it was written by, as far
// as its manifest says. Ranks ascend.
type Counts struct {
	Undeclared []int // ranks that wrote it without coordinated.Options.Elastic: they say nothing of arrays
	PerRank    []int // ranks with state that is protected per rank
	NotQuiet   []int // ranks with messages in flight
}

// Counts reads off the manifest what stands in the way. Without Shards it knows nothing, and names nothing.
func (i *EpochInfo) Counts() (c Counts) {
	for r := range i.Shards {
		switch l := i.Shards[r].Layout; {
		case l == nil:
			c.Undeclared = append(c.Undeclared, r)
		default:
			if l.PerRank {
				c.PerRank = append(c.PerRank, r)
			}
			if !l.Quiet {
				c.NotQuiet = append(c.NotQuiet, r)
			}
		}
	}
	return c
}

// Any says whether any number of ranks can restore the epoch.
func (c *Counts) Any() bool { return len(c.Undeclared)+len(c.PerRank)+len(c.NotQuiet) == 0 }

// Short names what stands in the way in a few words; empty: nothing does.
func (c *Counts) Short() string {
	var why []string
	for _, w := range []struct {
		ranks []int
		word  string
	}{{c.Undeclared, "not elastic"}, {c.PerRank, "per rank"}, {c.NotQuiet, "in flight"}} {
		if len(w.ranks) > 0 {
			why = append(why, w.word)
		}
	}
	return strings.Join(why, ", ")
}
