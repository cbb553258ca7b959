package driver

// Mem is a memory object; its parent has a number.
type Mem struct {
	Kind   MemKind
	Access Access
	Bytes  int64
	Parent uint64 // MemSub, MemView: the buffer; MemGlobal: the program
	Offset int64  // MemSub
	Image  ImageDesc
}

// HasContents reports whether the object has bytes of its own: those of a sub-buffer
// and of an image on a buffer are its parent's.
func (m *Mem) HasContents() bool { return m != nil && !m.Kind.OfBuffer() }
