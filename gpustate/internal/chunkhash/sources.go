package chunkhash

import _ "embed"

// The kernel in the languages of the APIs. Its arguments are the memory, where the bytes begin
// there (a multiple of 16) and how many they are, the key, the results, and the place of the first
// one among them. The PTX is
//
//	nvcc -ptx -arch=compute_75 chunkhash.cu
//
// with the version and the target lowered to 6.3 and sm_60, which have all of its instructions, and
// the SHA-256 of the source before it.
var (
	//go:embed chunkhash.cl
	OpenCL string
	//go:embed chunkhash.cu
	CUDA string
	//go:embed chunkhash.ptx
	PTX []byte
)
