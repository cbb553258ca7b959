package apps

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/bench"
)

// paired compares two ways to run that were measured in turn.
type paired struct {
	ratio float64 // median of the ratios of the pairs
	// low and high have that median between them: with a confidence of 95 % at
	// least if sure, and otherwise there are too few pairs and they are the
	// extremes.
	low, high float64
	sure      bool
}

// pairs compares values with the baselines that were measured beside each. The interval is that of
// the sign test, between two of the sorted ratios; it assumes nothing about the distribution of the
// noise.
func pairs(values, baselines bench.Samples) paired {
	n := min(len(values), len(baselines))
	ratios := make(bench.Samples, n)
	for i := range ratios {
		ratios[i] = values[i] / baselines[i]
	}
	sorted := slices.Sorted(slices.Values(ratios))
	p := paired{ratio: ratios.Median()}
	skip, ok := signTest(n)
	p.low, p.high, p.sure = sorted[skip], sorted[n-1-skip], ok
	return p
}

// signTest returns how many of n sorted values may be left out at each end so that
// the rest has the median between its ends with a confidence of 95 %; ok is false
// if not even all of them do.
func signTest(n int) (skip int, ok bool) {
	const beyond = 0.025 // at each end
	p := 1.0             // that k of n fair coins show heads, for k = skip
	for range n {
		p /= 2
	}
	sum := p
	for sum <= beyond {
		ok = true
		skip++
		p *= float64(n-skip+1) / float64(skip)
		sum += p
	}
	return max(skip-1, 0), ok
}
