// Package opencl tests libholdfast-opencl with OpenCL programs as they are: in C, and those
// that Debian has. They run on PoCL with the library and without, and are moved while they
// run.
package opencl
