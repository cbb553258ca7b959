package gpustate

import (
	"context"
	"testing"
)

// TestRecordedContents: the record alone says what the capture has.
func TestRecordedContents(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		d := open()
		newSetup(t, d, 1000).fill(t)
		c := must(d.Capture(context.Background(), nil))(t)
		defer func() { ok(t, c.Release()) }()
		got := must(RecordedContents(c.Record()))(t)
		want := c.Contents()
		if len(got) != len(want) || len(got) == 0 {
			t.Fatalf("got %v, want %v", got, want)
		}
		for i := range want {
			if got[i].Content != want[i] || got[i].Kind == "" {
				t.Errorf("content %d: got %+v, want %+v", i, got[i], want[i])
			}
		}
	})
	if _, err := RecordedContents([]byte("nothing")); err == nil {
		t.Error("read off what is no record")
	}
}
