package plot

import (
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/holdfast-hpc/holdfast/internal/bench"
)

var windowMetric = regexp.MustCompile(`window (\d+)`)

// windows draws run times by command window, relative to no window, a curve for
// each case, as SUITE-windows. Rows without any give no files.
func windows(dir string, rows []bench.Row) ([]string, error) {
	at := map[string]map[int]float64{}
	var cases []string
	var bounds []int
	suite := ""
	for _, r := range rows {
		m := windowMetric.FindStringSubmatch(r.Metric)
		if m == nil || r.Ratio == nil {
			continue
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			continue // more digits than a window has
		}
		if at[r.Case] == nil {
			at[r.Case] = map[int]float64{}
			cases = append(cases, r.Case)
		}
		at[r.Case][n] = *r.Ratio
		suite = r.Suite
		if !slices.Contains(bounds, n) {
			bounds = append(bounds, n)
		}
	}
	if len(cases) == 0 {
		return nil, nil
	}
	slices.Sort(bounds)
	var names []string
	for _, n := range bounds {
		names = append(names, strconv.Itoa(n))
	}
	var curves []Curve
	for _, name := range cases {
		c := Curve{Name: name}
		for i, n := range bounds {
			if v, ok := at[name][n]; ok {
				c.X, c.Y = append(c.X, float64(i)), append(c.Y, v)
			}
		}
		curves = append(curves, Curve{Name: name, X: append(c.X, float64(len(bounds))), Y: append(c.Y, 1)})
	}
	p, err := Curves("Run time by command window", "command window: unfinished commands allowed", "ratio to no window",
		curves)
	if err != nil {
		return nil, err
	}
	p.NominalX(append(names, "none")...) // from 0 on
	p.X.Min, p.X.Max = -0.3, float64(len(names))+0.3
	p.Y.Min, p.Y.Max = 0, math.Max(p.Y.Max*1.25, 1e-9) // there is room for the legend
	return Save(p, filepath.Join(dir, suite+"-windows"))
}
