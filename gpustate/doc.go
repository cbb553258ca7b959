// Package gpustate is a layer over GPU APIs that records the objects of a program. A checkpoint can hold them, and a
// restart can make them again, on the same device or on another one: another index, another vendor, another API.
//
// # Terms
//
// A Device is one device of a machine with a context of its own. A driver is
// the code behind it: "opencl" (any OpenCL platform), "cuda" (the CUDA driver
// API) or "fake" (plain Go, for tests). Objects are buffers, sub-buffers,
// images, shared buffers (SVM, managed memory), host buffers (pinned memory),
// samplers, programs, kernels and queues. A capture is the record of a device's
// objects together with the bytes of its memory objects at one moment; restore
// makes objects and bytes from it.
//
// # Promises
//
// Objects have names and are get-or-create: the line that makes a buffer on the first start finds it after a restore. A
// name is the object's identity: a program that releases a restored object discards its contents. Objects without a
// name are identified by the order in which the program asks for objects of their kind, including released ones.
// Kernels are counted for their program, ranges for their buffer. Make them in the same order at each start. A capture
// fails with ErrIdentity, and names the object, in two cases. A restarted program has made a new unnamed memory object
// instead of asking for one of the checkpoint. Or a released object from which others are made has the name of another
// object.
//
// Kernels of a released program and ranges of a released buffer stay valid, in a
// capture and after a restore or migration too.
//
// A failed call changes neither the object nor its record in captures.
//
// The API's own handles are looked up at each call. A program's *Buffer or *Kernel therefore stays valid when Restore
// or MigrateTo replaces the object of the driver.
//
// A capture waits for the commands that were issued and then holds exactly their
// results. When Capture has returned, the program may overwrite, release or create
// anything: the capture does not change.
//
// Restore and MigrateTo check every object of the record before they change the first one. If the new device cannot
// hold or support an object, the error names it and both devices.
//
// A build needs no SDK and a start no GPU library: libraries are opened at the first use. A missing one is an error
// that names the files that were tried.
//
// # Calls
//
// All calls are local: each rank calls them for its own devices. Sizes, lengths and offsets are bytes, but for images,
// whose extents are pixels, and launches, whose extents are work items. Durations and limits of time are time.Duration.
//
// An error of an object is an *ObjectError with the call, the object and the device. It matches one of the sentinels of
// this package, which say what to do, or has the *CallError of the API. After Close calls fail with ErrClosed; Release
// then does nothing. A command may fail after the call that issued it: Event.Wait, Event.Done and Queue.Finish report
// that.
//
// Calls that make objects or build programs take from microseconds to seconds. Commands are only issued, unless they
// say that they block.
//
// # Arguments
//
// A call copies what it needs before it returns: values of kernel arguments, extents, patterns, lists of events. Four
// things are used longer, and the program leaves them as they are meanwhile. Memory of an Async transfer is used until
// its event is complete. The byte slices of Sources are used as long as the Device. Memory of Pin, ShareMemory and
// alloc is used until the function or the Capture releases it. Shares of MarkShares are used until Release.
//
// # Commands
//
// A Queue takes kernels (Launch), transfers with the host (Write, Read and their Async forms), copies within the device
// (Copy) and patterns (Fill). WriteRect, ReadRect and CopyRect move boxes of bytes whose rows and slices lie apart. For
// images there are WriteImage, ReadImage, CopyImage, CopyFromImage, CopyToImage and FillImage. Marker tells when
// commands are complete; Barrier also keeps back those behind it. Each takes the events that it waits for and, unless
// it blocks, gives its own.
//
// A kernel takes Null for a buffer that is none. WorkGroup asks the device about a kernel; Clone makes a kernel
// with the same arguments.
// ImageDesc.Layers makes arrays of images, SubFor ranges at the device's own alignment.
//
// # Several devices
//
// Each Device has a context of its own. Queue.CopyFrom copies between two devices of any kind. Each device is captured
// for itself: a program whose devices must fit together captures them while none of them works, as Points do.
//
// There are no user events here: a command that waits for the program is issued only when the program says so (see
// package compat/cl). Captures and moves wait for all issued commands, and so never for the program.
//
// # Building programs
//
// Results of NVRTC are kept in the user's cache directory under holdfast/nvrtc, or in the directory that
// HOLDFAST_BUILD_CACHE names ("off": nowhere). The key is source, options, architecture and version of the compiler.
// Programs that include files are not cached. The OpenCL platforms and the CUDA driver (for PTX) have caches of their
// own.
//
// A binary form (PTX, cubin, SPIR-V) goes before the source. If the device of a restart or a move does not load it, the
// source is built, which may round in another order. Device.BuiltFromSource lists such programs with the driver's
// reason; Migration.FromSource lists those of a move. A program without a source for the API fails with a *BuildError
// or ErrNoSource.
//
// # Variables of programs
//
// The __device__ and __managed__ variables of a CUDA program belong to its state: they are captured, restored and
// moved. So are __constant__ variables that the program has asked for by Program.Variable. Other state outside of
// memory objects is refused with ErrHidden when the program is made. That is memory that kernels allocate, variables of
// OpenCL C 2.0 at program scope, which OpenCL neither reads nor writes, and variables of a fatbin, whose images are
// compressed. Move such data to a Buffer, or give the option Stateless if checkpoints do not need it.
//
// # Other code on the device
//
// Libraries such as cuBLAS, and cgo of the program, work on the same memory with the API's own pointers, contexts and
// streams. Device.Foreign lends these for the time of a call; captures and moves wait for that call and for the
// commands that it enqueued. Adopt makes a Buffer of memory that such code has allocated, AdoptQueue a Queue of its
// stream, AdoptContext a Device of its context.
//
// Collectives of such a library (NCCL) make a device wait for other ranks' devices. Let the ranks meet in a collective
// of MPI before each, as examples/allreduce does. Without it one rank may stand at a Point while another waits for it
// outside of MPI, so that no checkpoint can be taken. Communicators and plans are made again when Foreign.Generation
// has changed.
//
// # Concurrency
//
// All methods may be called from several goroutines, Release included: a call that
// comes too late fails with ErrReleased. Commands of one queue take
// turns, as do SetArgs and Launch of one kernel. Capture, Restore and MigrateTo
// wait for the calls in progress and let later ones wait.
//
// A non-blocking transfer uses the program's memory until its event is complete;
// the memory is pinned for that time. Memory of HostMemory is the fastest.
package gpustate
