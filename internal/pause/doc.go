// Package pause has CUDA programs give up their GPUs, and take them again. libholdfast-cuda does that in each process
// and listens at a socket for requests. This package finds the processes of a job on this node, has them vote before
// each step, and sends all of them back when one cannot go on: PROTOCOL.md.
package pause
