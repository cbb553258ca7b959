// Package cl takes the place of github.com/jgillich/go-opencl/cl: programs written against that package compile against
// this one after a change of the import line. gpustate records their OpenCL objects, so that they can be captured,
// restored and migrated.
//
// Context.State is the *gpustate.Device behind a context: give it to the
// checkpointer. Objects have no names in this API; they are identified by the
// order of their creation, released ones included, which must therefore be the same
// on a restart. If it is not, the first Point after the restart fails with
// gpustate.ErrIdentity.
//
// # Calls
//
// All calls are local: each rank makes them for its own devices. Sizes, offsets and pitches of memory are bytes.
// Origins and regions of images are pixels, sizes and offsets of index spaces work items, times of events nanoseconds.
//
// Data of CreateXX and patterns are copied. A command returns when it is issued, unless it blocks, moves an image, or
// waits for a user event. Errors are the ErrXX below, a BuildError, or those of gpustate.
//
// # Differences
//
//   - Platforms without devices are left out. A property that the device lacks is zero (go-opencl panicked).
//   - A context has one device. Context.Release waits for its commands and releases everything made with it. Nothing is
//     released by the garbage collector, since that would make the order of objects depend on chance: call Release.
//   - Data without MemCopyHostPtr or MemUseHostPtr, or such a flag without data, is ErrInvalidHostPtr; empty data is
//     ErrInvalidBufferSize. MemUseHostPtr copies: the memory is not used afterwards. A restored buffer is not filled.
//   - Images have 1, 2 or 3 dimensions; arrays, images of buffers, mip levels and samples are ErrUnsupported. An image
//     without data, and a mapped one, have their real size (there 0).
//   - Building again replaces the build. BuildError carries the whole log. WorkGroupSize and
//     PreferredWorkGroupSizeMultiple ignore their device.
//   - SetArg also takes 16- and 64-bit numbers and float64. SetArgUnsafe copies the bytes, which must not be handles.
//   - An argument that was never set, a released object and a range outside of a buffer are errors before OpenCL sees
//     them.
//   - Memory of transfers that do not block is pinned until they are complete (there the garbage collector could reuse
//     it). Transfers of images are complete when they return. Mapped memory is a copy that Unmap writes back.
//   - Flush does not wait (there it finished). Finish and WaitForEvents report failures of all commands.
//   - A call that fails gives no event (there one that crashed). An empty, non-nil wait list is legal (there it
//     panicked). Event.Release does nothing. GetEventProfilingInfo waits for the command.
//   - A command that waits for a user event which is not set yet is issued when it is set: the call waits.
//   - Errors are compared with ==, too. One without a counterpart in OpenCL is an error of gpustate.
package cl
