// Package image takes images of the processes of OpenCL programs, and starts programs from them. CRIU saves and makes
// the process; what is on devices, in the memory that the program shares with its helper and on the way between them is
// saved beside it. All of that is a shard of an epoch in a directory of package storage, so an image is committed,
// checked and listed like a checkpoint. docs/internals/OPENCL.md, chapter "Images", has the sections.
package image
