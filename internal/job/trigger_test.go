package job

import (
	"math"
	"testing"
	"time"
)

// TestDalyInterval compares with the minimum of Daly's run-time model, found by
// searching: T(τ) = M e^(R/M) (e^((τ+δ)/M) − 1) Ts/τ has its minimum over τ where
// R and Ts do not matter.
func TestDalyInterval(t *testing.T) {
	for _, c := range []struct{ cost, mtbf time.Duration }{{10 * time.Second, time.Hour}, {time.Second, 24 * time.Hour},
		{5 * time.Minute, time.Hour}, {20 * time.Millisecond, 6 * time.Hour}} {
		got := DalyInterval(c.cost, c.mtbf).Seconds()
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
	if got := DalyInterval(3*time.Hour, time.Hour); got != time.Hour {
		t.Errorf("a cost over twice the MTBF: got %v, want the MTBF", got)
	}
	if got := DalyInterval(0, time.Hour); got <= 0 {
		t.Errorf("no cost: got %v", got)
	}
}

func TestTriggerOrder(t *testing.T) {
	start := time.Unix(1000, 0)
	tr := NewTrigger(10*time.Second, 0, start.Add(25*time.Second), start)
	type ask struct {
		at   time.Duration
		stop bool
	}
	var got []ask
	for now := start; now.Before(start.Add(2 * time.Minute)); now = now.Add(time.Second) {
		if yes, stop := tr.Due(now); yes {
			got = append(got, ask{now.Sub(start), stop})
			if !stop {
				tr.Plan(now.Add(time.Second), 0) // it takes a second
			}
		}
	}
	want := []ask{{10 * time.Second, false}, {21 * time.Second, false}, {25 * time.Second, true}}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}
