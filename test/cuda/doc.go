// Package cuda tests libholdfast-cuda with a program in C that uses CUDA's driver. A fake libcuda.so.1, whose device is
// this machine's memory, takes the driver's place: the tests need no GPU.
package cuda
