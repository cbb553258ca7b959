// Package scale simulates the cut protocol on very many ranks in one process,
// to see what grows with their number.
//
// # What is real and what is not
//
// The machines are those of package cut, one per rank, and control messages are
// counted in their encoded size. Programs are simulated on virtual time: they
// compute, send, receive, enter collectives and come to Points. A control
// message takes one hop of latency, and each rank's agent handles messages one
// after the other, each taking a fixed time. There are no goroutines, and a run
// with the same Options gives the same Result.
//
// The simulation says how messages, rounds and bytes grow. It says nothing
// about a real network; times are sums of the latencies put in.
package scale
