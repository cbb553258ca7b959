// Package cl takes the place of github.com/jgillich/go-opencl/cl: programs
// written against that package compile against this one after a change of the
// import line, and their OpenCL objects are recorded by gpustate, so that they
// can be captured, restored and migrated.
//
// Context.State is the *gpustate.Device behind a context: give it to the
// checkpointer. Objects have no names in this API; they are identified by the
// order of their creation, released ones included, which must therefore be the same
// on a restart. If it is not, the first Point after the restart fails with
// gpustate.ErrIdentity.
//
// # Differences
//
// A context has one device. Nothing is released by the garbage collector, since
// that would make the order of objects depend on chance: call Release.
// Flush does not wait. Memory of transfers that do not block is pinned until
// they are complete. A call that fails gives no event. Mapped memory is a copy
// that Unmap writes back. A command that waits for a user event which is not
// set yet is issued when it is set: the call waits. docs/PORTING.md lists the
// calls that differ.
package cl

//go:generate go test ../internal/gen -update
