// Package cl is the OpenCL driver of gpustate. It binds OpenCL 1.2 and, where
// the platform has it, coarse-grained SVM and queue properties of 2.0.
//
// libOpenCL.so.1, the vendors' loader, is opened at the first use; building and
// starting a program needs neither the library nor its headers. Opening it is
// wrapped in sigguard.Around, as is each build: compilers inside OpenCL
// platforms install signal handlers that would keep signals from the program.
//
// The C files gather arguments and find the calls; calls.go has the Go files' common way to reach them.
package cl
