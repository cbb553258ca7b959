package mpiwrap

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/mailbox"
)

// FuzzRecord feeds the decoder of mailbox records: it must refuse or accept, and
// what it accepts must encode to the same messages.
func FuzzRecord(f *testing.F) {
	good := record{Version: 1, Size: 2, Mail: mailbox.Mail{Boxes: []mailbox.BoxRecord{
		{RecordMessage: endpoint.RecordMessage{Comm: "world", Tag: 3, Data: []byte("abc")}},
		{RecordMessage: endpoint.RecordMessage{Comm: "world.1"}}}}}
	b, err := good.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{})
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, '{', '}'})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again record
		if r.decode(b) != nil {
			return
		}
		out, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := again.decode(out); err != nil {
			t.Fatal(err)
		}
		if len(again.Boxes) != len(r.Boxes) {
			t.Fatalf("%d messages became %d", len(r.Boxes), len(again.Boxes))
		}
		for i := range r.Boxes {
			if string(r.Boxes[i].Data) != string(again.Boxes[i].Data) {
				t.Fatalf("message %d changed", i)
			}
		}
	})
}

// FuzzRequestRecord does the same for requests.
func FuzzRequestRecord(f *testing.F) {
	r := NewRequest(Single(), make([]int, 2))
	b, err := r.MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"Version":1,"State":2,"Comm":"world","Bytes":16}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = NewRequest(Single(), make([]int, 2)).UnmarshalBinary(b)
	})
}
