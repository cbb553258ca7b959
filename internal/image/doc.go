// Package image takes images of the processes of OpenCL and CUDA programs, and starts programs from them. CRIU saves
// and makes the process. The contents of OpenCL devices, of the memory that the program shares with its helper, and
// messages between the two are saved next to it; a CUDA program is paused, and so has the contents of its devices
// itself. All of that is a shard of an epoch in a directory of package storage, so an image is committed, checked and
// listed like a checkpoint. docs/internals/OPENCL.md, chapter "Images", has the sections.
package image
