// Package scale counts what epochs and restarts of very many ranks ask of the file
// systems, to see what grows with their number.
//
// # What is real and what is not
//
// The ranks of the first two nodes are real: each has a Store and a Persister, and works on
// real files through a counter. All other ranks are simulated. A simulated rank votes as the
// rank at its place on the second node does, with its own number, and its node's pack is an
// empty file. Manifests, votes and listings so have the length that they have in a job of
// that size.
//
// What the ranks of the second node do counts for every node but the first. Files that are
// removed are counted once.
package scale
