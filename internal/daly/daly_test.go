package daly

import (
	"math"
	"testing"
	"time"
)

// TestInterval compares with the minimum of Daly's run-time model, found by
// searching: T(τ) = M e^(R/M) (e^((τ+δ)/M) − 1) Ts/τ has its minimum over τ where
// R and Ts do not matter.
func TestInterval(t *testing.T) {
	for _, c := range []struct{ cost, mtbf time.Duration }{{10 * time.Second, time.Hour}, {time.Second, 24 * time.Hour},
		{5 * time.Minute, time.Hour}, {20 * time.Millisecond, 6 * time.Hour}} {
		got := Interval(c.cost, c.mtbf).Seconds()
		m, d := c.mtbf.Seconds(), c.cost.Seconds()
		runTime := func(tau float64) float64 { return (math.Exp((tau+d)/m) - 1) / tau }
		best := math.Inf(1)
		at := 0.0
		for tau := d / 100; tau < 3*m; tau *= 1.0005 {
			if v := runTime(tau); v < best {
				best, at = v, tau
			}
		}
		// The estimate drops terms of the order of (δ/2M)^(3/2); what counts is that
		// the run time is within a thousandth of the best.
		if runTime(got) > best*1.001 {
			t.Errorf("cost %v, MTBF %v: got %.2f s, the best is %.2f s", c.cost, c.mtbf, got, at)
		}
	}
	if got := Interval(3*time.Hour, time.Hour); got != time.Hour {
		t.Errorf("a cost over twice the MTBF: got %v, want the MTBF", got)
	}
	if got := Interval(0, time.Hour); got <= 0 {
		t.Errorf("no cost: got %v", got)
	}
}
