// Package jobtest has jobs of a few ranks for the tests of storage and of its rooms.
package jobtest
