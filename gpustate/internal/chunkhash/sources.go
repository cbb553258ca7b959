package chunkhash

import _ "embed"

// The kernel in the languages of the APIs. Its arguments are the memory, where the bytes begin
// there (a multiple of 16) and how many they are, the key, the results, and the place of the first
// one among them.
var (
	//go:embed chunkhash.cl
	OpenCL string
	//go:embed chunkhash.cu
	CUDA string
)
