package format

// Fields passes over the fields of a payload, little-endian: it appends them to an Encoder, or takes them off a Decoder
// into their places. So one function describes a record for both ways.
type Fields struct {
	e *Encoder
	d *Decoder // nil: they are appended
}

// Appending appends fields to e.
func Appending(e *Encoder) Fields { return Fields{e: e} }

// Taking takes fields off d.
func Taking(d *Decoder) Fields { return Fields{d: d} }

// pass passes over one field.
func pass[T any](f Fields, v *T, put func(e *Encoder, v T), take func(d *Decoder) T) {
	if f.d == nil {
		put(f.e, *v)
	} else {
		*v = take(f.d)
	}
}

// U8 passes over a byte. It and the next ones are written out, since a restart has 100,000 entries to pass over.
func (f Fields) U8(v *uint8) {
	if f.d == nil {
		f.e.U8(*v)
	} else {
		*v = f.d.U8()
	}
}

// U32 passes over four bytes.
func (f Fields) U32(v *uint32) {
	if f.d == nil {
		f.e.U32(*v)
	} else {
		*v = f.d.U32()
	}
}

// U64 passes over eight bytes.
func (f Fields) U64(v *uint64) {
	if f.d == nil {
		f.e.U64(*v)
	} else {
		*v = f.d.U64()
	}
}

// Sum passes over a digest.
func (f Fields) Sum(v *[16]byte) {
	if f.d == nil {
		f.e.Sum(*v)
	} else {
		*v = f.d.Sum()
	}
}

// Str passes over a string of at most 65,535 bytes, behind its length.
func (f Fields) Str(v *string) {
	if f.d == nil {
		f.e.Str(*v)
	} else {
		*v = f.d.Str()
	}
}

// Flag passes over a byte that is 0 or 1.
func (f Fields) Flag(v *bool) { pass(f, v, (*Encoder).flag, (*Decoder).flag) }

// Int passes over a number of four bytes.
func (f Fields) Int(v *int) {
	if f.d == nil {
		f.e.U32(uint32(*v))
	} else {
		*v = int(f.d.U32())
	}
}

// Epoch passes over the number of an epoch.
func (f Fields) Epoch(v *Epoch) { f.U64((*uint64)(v)) }

// I64 passes over a length or offset; more than 2^62 is damage.
func (f Fields) I64(v *int64) {
	if f.d == nil {
		f.e.U64(uint64(*v))
	} else {
		*v = f.d.I64()
	}
}

// Time passes over nanoseconds since 1970.
func (f Fields) Time(v *int64) {
	pass(f, v, func(e *Encoder, v int64) { e.U64(uint64(v)) }, func(d *Decoder) int64 { return int64(d.U64()) })
}

// Refuse marks the taken fields as damage.
func (f Fields) Refuse(bad bool) {
	if f.d != nil && bad {
		f.d.Bad = true
	}
}

// List passes over a list behind its length, item by item. An item has at least that many bytes.
func List[T any](f Fields, l *[]T, least int, item func(v *T)) {
	n := len(*l)
	if f.d == nil {
		f.e.U32(uint32(n))
	} else if n = f.d.Count(least); n > 0 {
		*l = make([]T, n)
	}
	for i := range n {
		item(&(*l)[i])
	}
}
