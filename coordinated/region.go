package coordinated

import (
	"bytes"
	"encoding"
	"fmt"
	"io"
	"reflect"
)

// State is for data that fits none of the simpler forms: it writes itself to a
// stream and reads itself back. SaveTo runs while the program waits.
type State interface {
	SaveTo(w io.Writer) error
	LoadFrom(r io.Reader) error
}

// region is one protected thing whose bytes lie in this process's memory.
type region interface {
	// kind says what it is and of which layout; it must be equal on restore.
	kind() string
	// bytes is its present size, an estimate for those that have to be asked.
	bytes() int64
	// view returns the bytes as they are now: the memory itself, or a fresh
	// encoding, in which case fresh is true.
	view() (b []byte, fresh bool, err error)
	// room returns memory of n bytes to read into; settle is called after that.
	room(n int64) ([]byte, error)
	settle() error
}

// newRegion picks the form for what the program passed to Protect.
func newRegion(x any) (region, error) {
	switch v := x.(type) {
	case nil:
		return nil, fmt.Errorf("nil; pass a pointer")
	case State:
		return &stateRegion{s: v}, nil
	case encoding.BinaryMarshaler:
		u, ok := x.(encoding.BinaryUnmarshaler)
		if !ok {
			return nil, fmt.Errorf("has MarshalBinary but no UnmarshalBinary; pass a pointer, or add it")
		}
		return &marshalRegion{m: v, u: u}, nil
	}
	v := reflect.ValueOf(x)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return nil, fmt.Errorf("cannot be protected; pass a pointer to a value or to a slice, an encoding.BinaryMarshaler with BinaryUnmarshaler, a coordinated.State or a *gpustate.Device")
	}
	if v.Elem().Kind() == reflect.Slice {
		l, err := layout(v.Elem().Type().Elem())
		if err != nil {
			return nil, fmt.Errorf("%w; protect the elements that it points to, or make it a coordinated.State", err)
		}
		return &sliceRegion{v: v.Elem(), layout: l}, nil
	}
	l, err := layout(v.Elem().Type())
	if err != nil {
		return nil, fmt.Errorf("%w; protect what it points to, or make it a coordinated.State", err)
	}
	return &valueRegion{v: v.Elem(), layout: l}, nil
}

// valueRegion is a fixed-size value without pointers.
type valueRegion struct {
	v      reflect.Value
	layout string
}

func (r *valueRegion) mem() []byte {
	return memory(r.v.Addr().UnsafePointer(), 1, int(r.v.Type().Size()))
}

func (r *valueRegion) kind() string                { return "value " + r.layout }
func (r *valueRegion) bytes() int64                { return int64(r.v.Type().Size()) }
func (r *valueRegion) view() ([]byte, bool, error) { return r.mem(), false, nil }
func (r *valueRegion) settle() error               { return nil }
func (r *valueRegion) room(n int64) ([]byte, error) {
	if n != r.bytes() {
		return nil, fmt.Errorf("%d bytes saved, %d now", n, r.bytes())
	}
	return r.mem(), nil
}

// sliceRegion is a slice of such values; its length may change.
type sliceRegion struct {
	v      reflect.Value
	layout string
}

func (r *sliceRegion) elem() int64 { return int64(r.v.Type().Elem().Size()) }

func (r *sliceRegion) mem() []byte {
	return memory(r.v.UnsafePointer(), r.v.Len(), int(r.elem()))
}

func (r *sliceRegion) kind() string                { return "slice " + r.layout }
func (r *sliceRegion) bytes() int64                { return int64(r.v.Len()) * r.elem() }
func (r *sliceRegion) view() ([]byte, bool, error) { return r.mem(), false, nil }
func (r *sliceRegion) settle() error               { return nil }

// room keeps the slice's memory when the length fits: the program may have
// handed it to somebody.
func (r *sliceRegion) room(n int64) ([]byte, error) {
	size := r.elem()
	if size == 0 || n%size != 0 {
		return nil, fmt.Errorf("%d bytes saved are no whole number of elements of %d bytes", n, size)
	}
	if count := int(n / size); r.v.Len() != count {
		if count <= r.v.Cap() {
			r.v.SetLen(count)
		} else {
			r.v.Set(reflect.MakeSlice(r.v.Type(), count, count))
		}
	}
	return r.mem(), nil
}

// marshalRegion is anything that encodes itself.
type marshalRegion struct {
	m    encoding.BinaryMarshaler
	u    encoding.BinaryUnmarshaler
	last int64
	in   []byte
}

func (r *marshalRegion) kind() string { return "binary" }
func (r *marshalRegion) bytes() int64 { return r.last }

func (r *marshalRegion) view() ([]byte, bool, error) {
	b, err := r.m.MarshalBinary()
	r.last = int64(len(b))
	return b, true, err
}

func (r *marshalRegion) room(n int64) ([]byte, error) {
	r.in = make([]byte, n)
	return r.in, nil
}

func (r *marshalRegion) settle() error {
	err := r.u.UnmarshalBinary(r.in)
	r.in = nil
	return err
}

// stateRegion is a State.
type stateRegion struct {
	s    State
	last int64
	in   []byte
}

func (r *stateRegion) kind() string { return "state" }
func (r *stateRegion) bytes() int64 { return r.last }

func (r *stateRegion) view() ([]byte, bool, error) {
	var b bytes.Buffer
	b.Grow(int(r.last))
	err := r.s.SaveTo(&b)
	r.last = int64(b.Len())
	return b.Bytes(), true, err
}

func (r *stateRegion) room(n int64) ([]byte, error) {
	r.in = make([]byte, n)
	return r.in, nil
}

func (r *stateRegion) settle() error {
	err := r.s.LoadFrom(bytes.NewReader(r.in))
	r.in = nil
	return err
}
