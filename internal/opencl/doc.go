// Package opencl serves one OpenCL program that runs as it is, through the vendor library
// libholdfast-opencl: it holds the program's objects by package gpustate, on a device of this
// machine or of a server, so that they are recorded, captured, restored and moved like those
// of a program written for gpustate.
//
// # Terms
//
// The program's process has a control connection, for what the server sends by itself, and
// lanes: each of its calls takes one for a request and its reply. A lane's requests are
// carried out one after the other, those of different lanes at the same time. Commands of a
// queue are issued to gpustate at once, or kept back while they wait for a user event.
//
// # Promises
//
// What a program sends is checked before it is used: an impossible message ends the service
// of that program, which has a server of its own. When the program ends, so does the server,
// and with it all that the program had. docs/OPENCL.md, chapter "The wire", has each message.
package opencl
