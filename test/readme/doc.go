// Package readme holds the README to what it says: its first commands do it, its lines of Go are those of the example
// that test/examples runs. The site of the documentation is made and looked at.
package readme
