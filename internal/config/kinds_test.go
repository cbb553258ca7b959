package config

import "testing"

type options struct {
	bytes int64
	count int
	epoch uint64
}

func TestBytes(t *testing.T) {
	set := Bytes(func(o *options) *int64 { return &o.bytes }).Set
	for text, want := range map[string]int64{"0": 0, "4096": 4096, "1k": 1000, "1.5M": 1500000, "2GiB": 2 << 30,
		"3 KiB": 3072, "7B": 7, "1TB": 1e12} {
		var o options
		if err := set(&o, text); err != nil || o.bytes != want {
			t.Errorf("%q: got %d, %v, want %d", text, o.bytes, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1.5", "1iB", "99999999999T", "1 GiB more"} {
		if err := set(&options{}, text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestCount(t *testing.T) {
	count := Count(func(o *options) *int { return &o.count }).Set
	epoch := Count(func(o *options) *uint64 { return &o.epoch }).Set
	var o options
	if err := count(&o, "7"); err != nil || o.count != 7 {
		t.Errorf("got %d, %v, want 7", o.count, err)
	}
	if err := epoch(&o, "18446744073709551615"); err != nil || o.epoch != 1<<64-1 {
		t.Errorf("got %d, %v, want the greatest", o.epoch, err)
	}
	for _, text := range []string{"", "-1", "x", "1.5", "18446744073709551615", "18446744073709551616"} {
		if err := count(&o, text); err == nil || o.count != 7 {
			t.Errorf("%q: got %d, %v, want an error and no change", text, o.count, err)
		}
	}
}
