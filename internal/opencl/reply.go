package opencl

import "encoding/binary"

// reply is the answer to a request.
type reply struct {
	status int32
	body   []byte
	bulk   []byte
	settle bool         // the program is to have the bytes of reads that are complete
	later  func(*reply) // waits, and fills in the rest; may be nil
}

func (r *reply) u32(v uint32)   { r.body = binary.LittleEndian.AppendUint32(r.body, v) }
func (r *reply) u64(v uint64)   { r.body = binary.LittleEndian.AppendUint64(r.body, v) }
func (r *reply) bytes(b []byte) { r.u32(uint32(len(b))); r.body = append(r.body, b...) }
func (r *reply) text(s string)  { r.bytes([]byte(s)) }
