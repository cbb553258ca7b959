// Package devmsg is the host memory through which messages of device memory go: blocks that
// a device reaches fast, slabs that two ranks of a node share, and the header that says where
// the bytes of a large message are.
//
// Nothing here calls MPI, and nothing knows of requests or communicators.
package devmsg
