package capture

import (
	"bytes"
	"encoding"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unsafe"
)

// stream is data that writes itself to a stream and reads itself back: coordinated.State.
type stream interface {
	SaveTo(w io.Writer) error
	LoadFrom(r io.Reader) error
}

// A Region is one protected thing whose bytes lie in this process's memory.
type Region interface {
	// Kind returns the kind and layout; it must be equal on restore.
	Kind() string
	// Bytes is its present size, an estimate for those that have to be asked.
	Bytes() int64
	// View returns the bytes as they are now: the memory itself, or a fresh
	// encoding, in which case fresh is true.
	View() (b []byte, fresh bool, err error)
	// stage readies the region to take n saved bytes. It changes nothing.
	stage(n int64) (*staged, error)
}

// staged is a region being restored. dst is filled first, which is all for memory of a fixed length; the rest follows
// when all ranks have filled theirs.
type staged struct {
	dst   []byte       // receives the saved bytes
	live  bool         // dst is the program's memory, and its contents are to be kept until the vote
	check func() error // looks at the bytes and changes nothing; nil: nothing to look at
	apply func() error // makes the bytes the program's; nil: they are
	undo  func()       // takes apply back; nil: it cannot be, for it runs the program's code
	last  func()       // takes effect when nothing can fail any more; nil: nothing
}

// runs reports whether apply runs the program's code, which may fail.
func (s *staged) runs() bool { return s.apply != nil && s.undo == nil }

// inMemory is a marshaler whose bytes are memory: *mpiwrap.Win.
type inMemory interface {
	BinaryMemory(n int) ([]byte, error)
}

// stager is a marshaler whose record can be looked at before it is put in force, and
// before any device is: *mpiwrap.Request, and values of a program that refuse another one's.
type stager interface {
	StageBinary(b []byte) (apply func(), err error)
}

// newRegion returns the form of a value that the program passed to Protect.
func newRegion(x any) (Region, error) {
	if v := reflect.ValueOf(x); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("nil pointer; allocate the %v first", v.Type().Elem())
	}
	switch v := x.(type) {
	case nil:
		return nil, fmt.Errorf("nil; pass a pointer")
	case stream:
		return &stateRegion{s: v}, nil
	case encoding.BinaryMarshaler:
		u, ok := x.(encoding.BinaryUnmarshaler)
		if !ok {
			return nil, fmt.Errorf("has MarshalBinary but no UnmarshalBinary; pass a pointer, or add it")
		}
		return &marshalRegion{m: v, u: u}, nil
	}
	v := reflect.ValueOf(x)
	if v.Kind() != reflect.Pointer {
		return nil, fmt.Errorf("cannot be protected; pass a pointer to a value or to a slice, an " +
			"encoding.BinaryMarshaler with BinaryUnmarshaler, a coordinated.State or a *gpustate.Device")
	}
	if v.Elem().Kind() == reflect.Slice {
		if elem := v.Elem().Type().Elem(); elem.Size() == 0 {
			return nil, fmt.Errorf("its elements, %v, have size 0, so a checkpoint would lose the length; protect "+
				"the length instead", elem)
		}
		l, err := TypeLayout(v.Elem().Type().Elem())
		if err != nil {
			return nil, fmt.Errorf("%w; protect the elements that it points to, or make it a coordinated.State", err)
		}
		return &Slice{V: v.Elem(), Layout: l}, nil
	}
	l, err := TypeLayout(v.Elem().Type())
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
	return MemoryOf(r.v.Addr().UnsafePointer(), 1, int(r.v.Type().Size()))
}

func (r *valueRegion) Kind() string                { return "value " + r.layout }
func (r *valueRegion) Bytes() int64                { return int64(r.v.Type().Size()) }
func (r *valueRegion) View() ([]byte, bool, error) { return r.mem(), false, nil }
func (r *valueRegion) stage(n int64) (*staged, error) {
	if n != r.Bytes() {
		return nil, fmt.Errorf("%d bytes saved, %d now", n, r.Bytes())
	}
	return &staged{dst: r.mem(), live: true}, nil
}

// Slice is a slice of such values; its length may change.
type Slice struct {
	V      reflect.Value
	Layout string
}

// Elem returns the bytes of an element.
func (r *Slice) Elem() int64 { return int64(r.V.Type().Elem().Size()) }

// Mem returns the bytes of the elements.
func (r *Slice) Mem() []byte {
	return MemoryOf(r.V.UnsafePointer(), r.V.Len(), int(r.Elem()))
}

// Kind names the type, as the checkpoint records it.
func (r *Slice) Kind() string { return "slice " + r.Layout }

// Bytes returns the size of all elements.
func (r *Slice) Bytes() int64 { return int64(r.V.Len()) * r.Elem() }

// View returns the program's own memory.
func (r *Slice) View() ([]byte, bool, error) { return r.Mem(), false, nil }

// stage keeps the slice's memory when the length fits: the program may have
// handed it to somebody.
func (r *Slice) stage(n int64) (*staged, error) {
	size := r.Elem()
	if size == 0 || n%size != 0 {
		return nil, fmt.Errorf("%d saved bytes are not a multiple of the element size, %d bytes", n, size)
	}
	count := int(n / size)
	was := reflect.New(r.V.Type()).Elem()
	was.Set(r.V)
	s := &staged{undo: func() { r.V.Set(was) }}
	if count <= r.V.Cap() {
		s.dst, s.live = MemoryOf(r.V.UnsafePointer(), count, int(size)), true
		s.apply = func() error { r.V.SetLen(count); return nil }
		return s, nil
	}
	grown := reflect.MakeSlice(r.V.Type(), count, count)
	s.dst = MemoryOf(grown.UnsafePointer(), count, int(size))
	s.apply = func() error { r.V.Set(grown); return nil }
	return s, nil
}

// marshalRegion is anything that encodes itself.
type marshalRegion struct {
	m    encoding.BinaryMarshaler
	u    encoding.BinaryUnmarshaler
	last int64
}

func (r *marshalRegion) Kind() string { return "binary" }
func (r *marshalRegion) Bytes() int64 { return r.last }

func (r *marshalRegion) View() ([]byte, bool, error) {
	b, err := r.m.MarshalBinary()
	r.last = int64(len(b))
	return b, true, err
}

func (r *marshalRegion) stage(n int64) (*staged, error) {
	if ours, ok := r.u.(inMemory); ok {
		mem, err := ours.BinaryMemory(int(n))
		if err != nil || mem != nil || n == 0 {
			return &staged{dst: mem, live: true}, err
		}
	}
	s := &staged{dst: make([]byte, n)}
	if ours, ok := r.u.(stager); ok {
		s.check = func() (err error) {
			s.last, err = ours.StageBinary(s.dst)
			return err
		}
		return s, nil
	}
	s.apply = func() error { return r.u.UnmarshalBinary(s.dst) }
	return s, nil
}

// stateRegion is a stream.
type stateRegion struct {
	s    stream
	last int64
}

func (r *stateRegion) Kind() string { return "state" }
func (r *stateRegion) Bytes() int64 { return r.last }

func (r *stateRegion) View() ([]byte, bool, error) {
	var b bytes.Buffer
	b.Grow(int(r.last))
	err := r.s.SaveTo(&b)
	r.last = int64(b.Len())
	return b.Bytes(), true, err
}

func (r *stateRegion) stage(n int64) (*staged, error) {
	s := &staged{dst: make([]byte, n)}
	s.apply = func() error {
		in := bytes.NewReader(s.dst)
		if err := r.s.LoadFrom(in); err != nil {
			return err
		}
		if in.Len() > 0 {
			return fmt.Errorf("LoadFrom read %d of the %d bytes that SaveTo wrote; it must read all of them",
				len(s.dst)-in.Len(), len(s.dst))
		}
		return nil
	}
	return s, nil
}

// TypeLayout describes a type by the meaning of its bytes: kinds, sizes and offsets. Two types with one layout may hold
// each other's bytes. It returns an error for types whose bytes have no meaning outside this process.
func TypeLayout(t reflect.Type) (string, error) {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return t.Kind().String(), nil
	case reflect.Array:
		e, err := TypeLayout(t.Elem())
		return fmt.Sprintf("[%d]%s", t.Len(), e), err
	case reflect.Struct:
		return structLayout(t)
	}
	return "", fmt.Errorf("%v holds a %v, whose bytes mean nothing in another process", t, t.Kind())
}

func structLayout(t reflect.Type) (string, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i := range t.NumField() {
		f := t.Field(i)
		l, err := TypeLayout(f.Type)
		if err != nil {
			return "", fmt.Errorf("field %s: %w", f.Name, err)
		}
		fmt.Fprintf(&b, "%s@%d %s;", f.Name, f.Offset, l)
	}
	fmt.Fprintf(&b, "}%d", t.Size())
	return b.String(), nil
}

// MemoryOf returns the bytes of n values of size bytes each at p.
func MemoryOf(p unsafe.Pointer, n, size int) []byte {
	if n == 0 || size == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(p), n*size)
}
