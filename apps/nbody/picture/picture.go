// Package picture draws bodies as an image: a look from above, along the z axis,
// brighter where there are more bodies.
package picture

import (
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"slices"

	"github.com/holdfast-hpc/holdfast/apps/nbody/bodies"
)

// Size is the side of a picture in pixels.
const Size = 800

// few is the number of bodies up to which they are drawn as discs, with this radius in pixels.
const (
	few        = 200
	discRadius = 3
)

// A View is a square of space to draw, with its centre in the origin.
type View struct{ half float64 } // half of its side

// ViewOf returns the square that holds 98 % of the bodies, and a tenth more on
// every side. Pictures of one run are to share the view of its start.
func ViewOf(s *bodies.System) View {
	reach := make([]float64, s.Len())
	for i := range reach {
		reach[i] = math.Max(math.Abs(float64(s.Pos[4*i])), math.Abs(float64(s.Pos[4*i+1])))
	}
	slices.Sort(reach)
	// Of few bodies all are to be seen.
	at := len(reach) - 1 - len(reach)/50
	if half := 1.1 * reach[at]; half > 0 {
		return View{half}
	}
	return View{1}
}

// pixel returns where a place is drawn; y points up.
func (v View) pixel(x, y float64) (px, py int) {
	scale := Size / (2 * v.half)
	return int(math.Floor((x + v.half) * scale)), int(math.Floor((v.half - y) * scale))
}

// Draw draws the bodies. Equal systems and views give equal pictures.
func (v View) Draw(s *bodies.System) *image.RGBA {
	counts := make([]int, Size*Size)
	most := 0
	for i := range s.Len() {
		px, py := v.pixel(float64(s.Pos[4*i]), float64(s.Pos[4*i+1]))
		radius := 0
		if s.Len() <= few {
			radius = discRadius
		}
		most = max(most, disc(counts, px, py, radius))
	}
	img := image.NewRGBA(image.Rect(0, 0, Size, Size))
	for at, n := range counts {
		img.SetRGBA(at%Size, at/Size, shade(n, most))
	}
	return img
}

// disc adds one to the pixels around a place and returns the largest count.
func disc(counts []int, px, py, radius int) (most int) {
	for y := py - radius; y <= py+radius; y++ {
		for x := px - radius; x <= px+radius; x++ {
			inside := (x-px)*(x-px)+(y-py)*(y-py) <= radius*radius
			if inside && x >= 0 && x < Size && y >= 0 && y < Size {
				counts[y*Size+x]++
				most = max(most, counts[y*Size+x])
			}
		}
	}
	return most
}

// shade returns the colour of a pixel with n bodies: black without any, then
// from a deep blue to white as the logarithm of n grows.
func shade(n, most int) color.RGBA {
	if n == 0 {
		return color.RGBA{A: 255}
	}
	t := math.Log1p(float64(n)) / math.Log1p(float64(most))
	return color.RGBA{uint8(60 + 195*t*t), uint8(90 + 165*t), 255, 255}
}

// Write draws the bodies and writes the picture as PNG.
func (v View) Write(w io.Writer, s *bodies.System) error { return png.Encode(w, v.Draw(s)) }
