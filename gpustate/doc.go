// Package gpustate is a layer over GPU APIs that records the objects a program
// makes, so that a checkpoint can hold them and a restart can make them again,
// on the same device or on another one: another index, another vendor, another
// API.
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
// Objects have names and are get-or-create: the line that makes a buffer on the first
// start finds it after a restore. A name is the object's identity: a program that
// releases a restored object discards its contents. Objects without a name are
// identified by the order in which the program asks for objects of their kind (for
// kernels: of their program, for ranges: of their buffer), including those that it has
// released. Make them in the same order at each start. A capture fails with
// ErrIdentity, and names the object, when a restarted program has made an unnamed
// memory object that the checkpoint did not hold instead of asking for one that it did
// hold, or when a released object that others are made from has the name of another
// one, in use or also released.
//
// Kernels of a released program and ranges of a released buffer stay valid, in a
// capture and after a restore or migration too.
//
// A failed call changes neither the object nor what a capture records of it.
//
// The API's own handles are looked up at each call. A program's *Buffer or
// *Kernel therefore stays valid when Restore or MigrateTo replaces what is
// behind it.
//
// A capture waits for the commands that were issued and then holds exactly their
// results. When Capture has returned, the program may overwrite, release or create
// anything: the capture does not change.
//
// Restore and MigrateTo check every object of the record before they change the
// first one; an object that the new device cannot hold or support is an error that
// names it and both devices.
//
// Nothing here needs an SDK to build or a GPU library to start: libraries are
// opened at the first use, and a missing one is an error that names the files
// that were tried.
//
// # Calls
//
// All calls are local: each rank calls them for its own devices. Sizes and offsets are bytes, but for images, whose
// extents are pixels. An error is an *ObjectError with the call and the object; sentinels such as ErrReleased and
// ErrRange tell the kinds apart. Calls that make objects or build programs take from microseconds to seconds;
// commands are only issued, unless they say that they block.
//
// # Commands
//
// A Queue takes kernels (Launch), transfers with the host (Write, Read and their Async
// forms), copies within the device (Copy), patterns (Fill), boxes of bytes whose rows and
// slices lie apart (WriteRect, ReadRect, CopyRect), and for images WriteImage, ReadImage,
// CopyImage, CopyFromImage, CopyToImage and FillImage. Marker tells when commands are
// complete; Barrier also keeps back those behind it. Each takes the events that it waits
// for and, unless it blocks, gives its own.
//
// A kernel takes Null for a buffer that is none. WorkGroup asks the device about a kernel; Clone makes a kernel
// with the same arguments.
// ImageDesc.Layers makes arrays of images, SubFor ranges at the device's own alignment.
//
// # Several devices
//
// Each Device has a context of its own. Queue.CopyFrom copies between two of them, of any
// kind. Each device is captured for itself: a program whose devices must fit together
// captures them while none of them works, as Points do.
//
// There are no user events here: what waits for the program is not issued before the
// program says so, as package compat/cl does it, so that captures and moves, which wait for
// all that was issued, never wait for the program.
//
// # Building programs
//
// What NVRTC compiles is kept in the user's cache directory under holdfast/nvrtc,
// or in the directory that HOLDFAST_BUILD_CACHE names ("off": nowhere), by source,
// options, architecture and version of the compiler; programs that include files
// are not cached. The OpenCL platforms and the CUDA driver (for PTX) have caches of
// their own.
//
// A binary form (PTX, cubin, SPIR-V) goes before the source. If the device of a
// restart or a move does not load it, the source is built, which may round in another
// order: Device.BuiltFromSource lists such programs with the driver's reason, and
// Migration.FromSource those of a move. A program without a source for the API fails
// with a *BuildError or ErrNoSource.
//
// # Variables of programs
//
// The __device__ and __managed__ variables of a CUDA program belong to its state:
// they are captured, restored and moved, and so are __constant__ ones that Program.Variable
// has given to be written. What a program keeps elsewhere outside of
// memory objects is refused with ErrHidden when the program is made: memory that
// kernels allocate, the variables of OpenCL C 2.0 at program scope, which
// OpenCL neither reads nor writes, and those of a fatbin, whose images are compressed.
// Move such data to a Buffer, or give the option Stateless if checkpoints do not need it.
//
// # Other code on the device
//
// Libraries such as cuBLAS and cgo of the program work on the same memory with the API's
// own pointers, contexts and streams, which Device.Foreign lends for the time of a call;
// captures and moves wait for that call and for what it enqueued. Adopt makes a Buffer of
// memory that such code has allocated, AdoptQueue a Queue of its stream, AdoptContext a Device
// of its context.
//
// Collectives of such a library (NCCL) make a device wait for those of other ranks. Let the ranks
// meet in a collective of MPI before each, as examples/allreduce does: without it one rank may
// stand at a Point while another waits for it where no checkpoint can be taken. Communicators
// and plans are made again when Foreign.Generation has changed.
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
