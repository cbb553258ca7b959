// Package devmsg carries messages from and to device memory: the host memory that they
// pass through, the RTS that stands for a large one, and its bytes.
//
// A large message is an RTS (ready to send: a Header of 128 bytes) among the messages of
// its communicator, and its bytes beside it. The bytes lie in a slab, which is memory that
// the ranks of a node share, or travel over MPI in pieces. They come from host memory, or,
// where MPI takes the addresses of a device, from the device itself after a rendezvous:
// the receiver answers the RTS with a CTS (clear to send).
//
// A Port is a rank's end of all this. A Send is a large message that leaves. An Arrival is
// one whose RTS a receive has got and whose bytes are not there yet. Nothing here knows of
// requests or communicators: a receive hands over the RTS and says where the bytes go.
package devmsg
