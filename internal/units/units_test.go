package units

import "testing"

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 102 << 10: "102 KiB",
		1<<20 - 1: "1.0 MiB", 2 << 30: "2.0 GiB", 1<<63 - 1: "8.0 EiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"set it to true", 14, "set it to true"}, {"set it to true or leave it", 20, "set it to true …"},
		{"set it to true or leave it", 18, "set it to true …"}, {"aaaaaaaaaaaaaaaaaaaa", 10, "aaaaaa …"},
		{"ääääääääää", 11, "äää …"},
	} {
		if got := Cut(c.text, c.most); got != c.want || len(got) > c.most {
			t.Errorf("%q to %d: got %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
