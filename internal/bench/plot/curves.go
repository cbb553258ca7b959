package plot

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A Curve is a named row of points.
type Curve struct {
	Name string
	X, Y []float64
}

// Curves returns a plot of curves with a legend.
func Curves(title, x, y string, curves []Curve) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(8)
	p.Y.Tick.Marker = even{}
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(3)
	p.Add(plotter.NewGrid())
	for i, c := range curves {
		points := make(plotter.XYs, len(c.X))
		for k := range c.X {
			points[k].X, points[k].Y = c.X[k], c.Y[k]
		}
		l, s, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		l.Width = vg.Points(1.8)
		l.Color = colours[i%len(colours)]
		if i >= len(colours) {
			l.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		}
		s.Color, s.Shape, s.Radius = l.Color, draw.CircleGlyph{}, vg.Points(2.6)
		p.Add(l, s)
		p.Legend.Add(c.Name, l, s)
	}
	return p, nil
}

// LogX makes the horizontal axis logarithmic.
func LogX(p *plot.Plot) {
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades{}
}
