package codec

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// all has a field of each kind.
type all struct {
	u       uint64
	i       int64
	n, few  int
	yes     bool
	four    int32
	eight   uint64
	s       string
	b, same []byte
	list    []string
	more    uint64
}

func (a *all) fields(f *Fields) {
	f.Uint(&a.u)
	Int(f, &a.i)
	Size(f, &a.n)
	Small(f, &a.few, 9)
	f.Bool(&a.yes)
	Fixed(f, &a.four)
	Fixed(f, &a.eight)
	f.Str(&a.s)
	f.Bytes(&a.b)
	f.Alias(&a.same)
	List(f, &a.list, 5, func(s *string) { f.Str(s) })
	f.Body(func(f *Fields) { f.Uint(&a.more) })
}

// TestFields checks that what is written is read, and that bytes that end too early or go on are malformed.
func TestFields(t *testing.T) {
	in := all{1 << 63, -1 << 63, 300, 9, true, -2, 3, "text", []byte{0, 1}, []byte("same"), []string{"", "two"}, 7}
	b := Encode(in.fields)
	var out all
	if err := Decode(b, out.fields); err != nil || !bytes.Equal(Encode(out.fields), b) || out.u != in.u ||
		out.i != in.i || !slices.Equal(out.list, in.list) || out.s != in.s || out.more != in.more {
		t.Errorf("got %+v, %v, want %+v", out, err, in)
	}
	for n := range b {
		if err := Decode(b[:n], new(all).fields); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d of %d bytes: got %v", n, len(b), err)
		}
	}
	if err := Decode(append(b, 0), new(all).fields); !errors.Is(err, ErrMalformed) {
		t.Errorf("a byte too many: got %v", err)
	}
}

// TestReader checks the fields of a fixed size, and that nothing is read after an error.
func TestReader(t *testing.T) {
	r := Reader{B: []byte{1, 2, 0, 0, 1, 9, 9}}
	if v := r.Fixed(1); v != 1 {
		t.Errorf("got %d, want 1", v)
	}
	if v := r.Fixed(4); v != 1<<24+2 {
		t.Errorf("got %#x", v)
	}
	if b := r.Take(1); !bytes.Equal(b, []byte{9}) || cap(b) != 1 {
		t.Errorf("got % x", b)
	}
	if b, v := r.Take(2), r.Fixed(1); b != nil || v != 0 || !errors.Is(r.Err, ErrMalformed) {
		t.Errorf("beyond the end: got % x, %d, %v", b, v, r.Err)
	}
	for _, b := range [][]byte{{2}, {0xff}, {5, 1, 2}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		for name, read := range map[string]func(*Reader){"bool": func(r *Reader) { r.Bool() },
			"bytes": func(r *Reader) { r.Bytes() }, "count": func(r *Reader) { r.Count() },
			"small": func(r *Reader) { r.Small(1) }, "negative": func(r *Reader) { r.Take(-1) }} {
			in := Reader{B: b}
			if read(&in); in.Err == nil {
				t.Errorf("%s of % x: no error", name, b)
			}
		}
	}
}
