// Package daly knows how much computing between checkpoints loses the least time.
package daly

import (
	"math"
	"time"
)

// Interval returns the computing time between checkpoints that minimises
// the expected run time when one blocks the program for cost and failures come
// mtbf apart on average:
//
//	√(2 cost mtbf) · (1 + ⅓ √(cost/2mtbf) + ⅑ cost/2mtbf) − cost,  for cost < 2 mtbf
//
// and mtbf otherwise. Source: J. T. Daly, "A higher order estimate of the
// optimum checkpoint interval for restart dumps", Future Generation Computer
// Systems 22 (2006) 303, equation 37; its first term is Young's (1974). A cost
// of zero or less counts as a microsecond.
func Interval(cost, mtbf time.Duration) time.Duration {
	cost = max(cost, time.Microsecond)
	if cost >= 2*mtbf {
		return mtbf
	}
	d, m := cost.Seconds(), mtbf.Seconds()
	x := d / (2 * m)
	tau := math.Sqrt(2*d*m)*(1+math.Sqrt(x)/3+x/9) - d
	return time.Duration(tau * float64(time.Second))
}
