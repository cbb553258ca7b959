// Package kernel holds the device code of the distributed transpose, as OpenCL C
// and as CUDA C with the same kernels and arguments. Elements are uint32, matrices
// row-major.
package kernel
