// Package opencl serves one OpenCL program that runs as it is, through the vendor library
// libholdfast-opencl: it holds the program's objects by package gpustate, on a device of this
// machine or of a server, so that they are recorded, captured, restored and moved like those
// of a program written for gpustate.
//
// # Terms
//
// The program's process has a control connection, on which the server sends unsolicited messages, and
// request connections: each call takes one for a request and its reply. Requests of one connection run
// in order, those of several connections concurrently. Requests that need no reply pass through a ring in
// shared memory. Commands of a queue are issued to gpustate at once, or kept back while they wait for a
// user event.
//
// A paused program has its objects in memory and on no device. Its requests wait, and another process makes the objects
// again: hold.go, keep.go, attach.go, door.go.
//
// # Promises
//
// What a program sends is checked before it is used: an impossible message ends the service
// of that program, which has a server of its own. When the program ends, so does the server,
// and with it all that the program had. docs/internals/OPENCL.md, chapter "The wire", has each message.
package opencl
