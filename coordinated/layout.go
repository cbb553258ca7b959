package coordinated

import (
	"fmt"
	"reflect"
	"strings"
	"unsafe"
)

// layout describes a type by what its bytes mean: kinds, sizes and offsets.
// Two types with one layout may hold each other's bytes. It returns an error
// for types whose bytes mean nothing outside this process.
func layout(t reflect.Type) (string, error) {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return t.Kind().String(), nil
	case reflect.Array:
		e, err := layout(t.Elem())
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
		l, err := layout(f.Type)
		if err != nil {
			return "", fmt.Errorf("field %s: %w", f.Name, err)
		}
		fmt.Fprintf(&b, "%s@%d %s;", f.Name, f.Offset, l)
	}
	fmt.Fprintf(&b, "}%d", t.Size())
	return b.String(), nil
}

// memory returns the bytes of n values of size bytes each at p.
func memory(p unsafe.Pointer, n, size int) []byte {
	if n == 0 || size == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(p), n*size)
}
