package plot

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"gonum.org/v1/plot/vg"

	"github.com/holdfast-hpc/holdfast/internal/bench"
)

var windowMetric = regexp.MustCompile(`window (\d+)`)

// Windows draws run times by command window, relative to no window, a curve for
// each case, as SUITE-windows. Lines without any give no files.
func Windows(dir string, lines []bench.Line) ([]string, error) {
	at := map[string]map[int]float64{}
	var cases []string
	var windows []int
	suite := ""
	for _, l := range lines {
		m := windowMetric.FindStringSubmatch(l.Metric)
		if m == nil || l.Ratio == nil {
			continue
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			continue // more digits than a window has
		}
		if at[l.Case] == nil {
			at[l.Case] = map[int]float64{}
			cases = append(cases, l.Case)
		}
		at[l.Case][n] = *l.Ratio
		suite = l.Suite
		if !slices.Contains(windows, n) {
			windows = append(windows, n)
		}
	}
	if len(cases) == 0 {
		return nil, nil
	}
	slices.Sort(windows)
	var curves []Curve
	for _, name := range cases {
		c := Curve{Name: name}
		for i, n := range windows {
			if v, ok := at[name][n]; ok {
				c.X, c.Y = append(c.X, float64(i)), append(c.Y, v)
			}
		}
		curves = append(curves, Curve{Name: name, X: append(c.X, float64(len(windows))), Y: append(c.Y, 1)})
	}
	p, err := Curves("Run time by command window", "commands that may wait on the device", "relative to no window", curves)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(windows)+1)
	for i, n := range windows {
		names[i] = strconv.Itoa(n)
	}
	names[len(windows)] = "none"
	Labels(p, names)
	FromZero(p)
	return Save(p, 8*vg.Inch, 4.5*vg.Inch, filepath.Join(dir, suite+"-windows"))
}
