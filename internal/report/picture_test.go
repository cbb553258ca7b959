package report

import (
	"image/png"
	"os"
	"testing"
)

// checkPicture wants a picture in which the timeline has been drawn: many
// colours, and those of computing among them.
func checkPicture(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[3]uint32]int{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y += 2 {
		for x := b.Min.X; x < b.Max.X; x += 2 {
			r, g, b, _ := img.At(x, y).RGBA()
			seen[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	computing := seen[[3]uint32{0xa9, 0xce, 0xb4}] + seen[[3]uint32{0x3e, 0x73, 0x55}]
	if len(seen) < 40 || computing < 5000 {
		t.Errorf("got %d colours and %d points of computing: the timeline is not drawn", len(seen), computing)
	}
}
