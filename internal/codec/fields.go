package codec

import (
	"encoding/binary"
	"unsafe"
)

// Fields passes over the fields of a message or record in their order and writes them
// to W, or reads them from R: one list of fields serves both ways.
type Fields struct {
	Reading bool
	W       Writer
	R       Reader
}

// Decode has fields read from bytes.
func Decode(b []byte, fields func(*Fields)) error {
	f := &Fields{Reading: true, R: Reader{B: b}}
	fields(f)
	return f.R.End()
}

// Encode has fields written.
func Encode(fields func(*Fields)) []byte {
	f := &Fields{}
	fields(f)
	return f.W.B
}

// Check fails the reading of an impossible value.
func (f *Fields) Check(ok bool, what string) {
	if f.Reading && !ok {
		f.R.Fail(what)
	}
}

// Uint passes unsigned numbers.
func (f *Fields) Uint(list ...*uint64) {
	for _, v := range list {
		if f.Reading {
			*v = f.R.Uint()
		} else {
			f.W.Uint(*v)
		}
	}
}

// Bool passes truth values.
func (f *Fields) Bool(list ...*bool) {
	for _, v := range list {
		if f.Reading {
			*v = f.R.Bool()
		} else {
			f.W.Bool(*v)
		}
	}
}

// Str passes texts.
func (f *Fields) Str(list ...*string) {
	for _, v := range list {
		if f.Reading {
			*v = f.R.Str()
		} else {
			f.W.Str(*v)
		}
	}
}

// Bytes passes bytes. The result shares no memory with the body.
func (f *Fields) Bytes(list ...*[]byte) {
	for _, v := range list {
		if f.Reading {
			*v = append([]byte{}, f.R.Bytes()...)
		} else {
			f.W.Bytes(*v)
		}
	}
}

// Alias passes bytes without a copy: the result is part of the body.
func (f *Fields) Alias(v *[]byte) {
	if f.Reading {
		*v = f.R.Bytes()
	} else {
		f.W.Bytes(*v)
	}
}

// Int passes numbers.
func Int[T ~int | ~int64](f *Fields, list ...*T) {
	for _, v := range list {
		if f.Reading {
			*v = T(f.R.Int())
		} else {
			f.W.Int(int64(*v))
		}
	}
}

// Size passes lengths or offsets: numbers that are not below zero.
func Size[T ~int | ~int64 | ~uint32](f *Fields, list ...*T) {
	for _, v := range list {
		if f.Reading {
			*v = T(f.R.Size())
		} else {
			f.W.Int(int64(*v))
		}
	}
}

// Fixed passes numbers of as many little-endian bytes as their type has.
func Fixed[T ~int32 | ~uint32 | ~int64 | ~uint64](f *Fields, list ...*T) {
	for _, v := range list {
		n := int(unsafe.Sizeof(*v))
		if f.Reading {
			*v = T(f.R.Fixed(n))
		} else {
			f.W.B = append(f.W.B, binary.LittleEndian.AppendUint64(nil, uint64(*v))[:n]...)
		}
	}
}

// Small passes a number between 0 and most.
func Small[T ~int | ~uint8 | ~uint32](f *Fields, v *T, most int) {
	if f.Reading {
		*v = T(f.R.Small(most))
	} else {
		f.W.Uint(uint64(*v))
	}
}

// List passes a list of at most `most` items, each of at least one byte. The memory of the list is reused.
func List[T any](f *Fields, list *[]T, most int, pass func(*T)) {
	if !f.Reading {
		f.W.Uint(uint64(len(*list)))
		for i := range *list {
			pass(&(*list)[i])
		}
		return
	}
	*list = (*list)[:0]
	for i := range f.R.Small(min(most, len(f.R.B))) {
		*list = append(*list, *new(T))
		pass(&(*list)[i])
	}
}

// Body passes fields with their length before them, so that a reader can pass over those
// that later versions add.
func (f *Fields) Body(fields func(*Fields)) {
	if !f.Reading {
		f.W.Bytes(Encode(fields))
		return
	}
	in := &Fields{Reading: true, R: Reader{B: f.R.Bytes()}}
	if f.R.Err != nil {
		return
	}
	if fields(in); in.R.Err != nil {
		f.R.Err, f.R.B = in.R.Err, nil
	}
}
