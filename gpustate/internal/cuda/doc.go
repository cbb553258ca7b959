// Package cuda is the CUDA driver of gpustate: the driver API, and NVRTC to
// compile CUDA C++ where it is installed.
//
// libcuda.so.1, which comes with the kernel driver, and libnvrtc are opened at
// the first use; building and starting a program needs no CUDA toolkit. A
// program that brings PTX, cubin or fatbin needs no NVRTC.
//
// The device's primary context is used, which the CUDA runtime shares. Contexts
// are current per OS thread and goroutines change threads, so each function of
// table.c makes the context current before it does anything else; no goroutine
// is bound to a thread.
//
// # How OpenCL's terms map
//
// A queue is a stream, in order even when asked for otherwise. Work items are
// threads and work-groups blocks. Image arguments are surface objects, or, for
// images that kernels only read, texture objects with the first sampler that
// follows among the arguments; samplers and local sizes take no place in the
// kernel's parameter list.
//
// The C files gather arguments and find the calls; calls.go has the Go files' common way to reach them.
package cuda
