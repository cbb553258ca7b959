package cut

import (
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
)

var wireExamples = []Message{
	{Kind: kindAsk, Yes: true},
	{Kind: kindNeed, Epoch: 7, Rank: 3, Round: 1 << 40, Had: 12, Any: true},
	{Kind: kindAnswer, Epoch: 1, Min: ^uint64(0), Max: 3, Colls: []Standing{{"world", 4, 2, 5, 6},
		{"row", 2, 1, 0, 0}}},
	{Kind: KindGather, Epoch: 2, Stage: "local", Blobs: []Blob{{0, []byte("a")}, {9, []byte{}}}},
	{Kind: KindPublish, Blobs: []Blob{{3, []byte{}}, {4, []byte{}}, {5, []byte("x")}, {6, []byte("x")},
		{8, []byte("x")}}},
	{Kind: KindStatus, Stage: "status 3"},
	{Kind: kindPolled, Sum: 99, Found: []Candidate{{3, 1}, {70000, 1 << 50}}, Comm: "world.1[3]"},
}

func TestWireRoundTrip(t *testing.T) {
	for _, want := range wireExamples {
		got, err := Decode(want.Append(nil))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

// TestWireTruncated: no prefix of a message is a message, and none panics.
func TestWireTruncated(t *testing.T) {
	for _, m := range wireExamples {
		b := m.Append(nil)
		for n := range b {
			if got, err := Decode(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%v cut to %d of %d bytes: got %+v, %v", m.Kind, n, len(b), got, err)
			}
		}
		if _, err := Decode(append(b, 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v with a byte behind it: got %v", m.Kind, err)
		}
	}
}

// TestWireRuns: the votes of many ranks that say the same take few bytes.
func TestWireRuns(t *testing.T) {
	m := Message{Kind: KindPublish}
	for r := range 100_000 {
		m.Blobs = append(m.Blobs, Blob{Rank: r, Data: []byte("yes")})
	}
	b := m.Append(nil)
	if len(b) > 64 {
		t.Errorf("got %d bytes, want 64 at most", len(b))
	}
	if got, err := Decode(b); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("came back with %d blobs, %v", len(got.Blobs), err)
	}
}

// TestWireRunTooLong: a few bytes must not ask for all memory.
func TestWireRunTooLong(t *testing.T) {
	b := (&Message{Kind: KindPublish}).Append(nil)
	b = binary.AppendUvarint(append(b[:len(b)-1], 1, 0), 1<<40)
	if _, err := Decode(append(b, 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range wireExamples {
		f.Add(m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(m.Append(nil))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v came back as %+v, %v", m, again, err)
		}
	})
}

func TestGather(t *testing.T) {
	g := NewGather(2)
	if _, ok := g.Add(4, 1, "local", []Blob{{4, []byte("d")}, {5, []byte("e")}}); ok {
		t.Fatal("complete with one of three")
	}
	if _, ok := g.Add(4, 1, "local", []Blob{{4, []byte("again")}}); ok {
		t.Fatal("a second blob of one child counted")
	}
	g.Add(1, 1, "local", []Blob{{1, []byte("a")}})
	m, ok := g.Add(2, 1, "local", []Blob{{2, nil}})
	if !ok || len(m.Blobs) != 4 || m.Blobs[0].Rank != 1 || string(m.Blobs[2].Data) != "d" {
		t.Fatalf("got %+v, %t", m, ok)
	}
}
