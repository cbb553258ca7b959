// Package readme holds the README to what it says: its program is built and run as a
// reader would.
package readme
