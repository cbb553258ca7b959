package verb

import "testing"

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{"1": 1, "64K": 64000, "1.5MiB": 3 << 19, "8GiB": 8 << 30, "8G": 8e9,
		"2TB": 2e12, "0": -1,
		"": -1, "x": -1, "-1G": -1, "1Gx": -1, "1KM": -1, "1e30G": -1} {
		var got Size
		if err := got.Set(text); err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}
