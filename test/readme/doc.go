// Package readme holds the README to what it says: its first commands do it, its lines of Go are those of the example
// that test/examples runs.
package readme
