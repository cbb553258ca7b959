// Package peer lets the stores of a job's ranks use each other's level directories as files: FS asks, Server answers,
// over connections that a Transport makes. Every byte is checked on the way. Nothing is decided here: who holds what is
// the business of those that ask.
package peer
