package fake

import (
	"encoding/binary"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
)

// ChunkHash is the kernel of captures' hashes: it hashes bytes chunk by chunk. Its arguments are those that
// chunkhash.OpenCL says.
func ChunkHash(l Launch) {
	number := func(i int) uint64 { return binary.NativeEndian.Uint64(l.Args[i].Bytes) }
	var key chunkhash.Key
	for i := range key {
		key[i] = binary.NativeEndian.Uint32(l.Args[3].Bytes[4*i:])
	}
	off, at, results := number(1), number(5), l.Args[4].Bytes
	for p := l.Args[0].Bytes[off : off+number(2)]; len(p) > 0; at++ {
		n := min(len(p), chunkhash.Bytes)
		for j, v := range key.Raw(p[:n]) {
			binary.NativeEndian.PutUint64(results[chunkhash.RawBytes*int(at)+8*j:], v)
		}
		p = p[n:]
	}
}
