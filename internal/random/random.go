// Package random has bytes of the kernel's generator, for keys, and for names and numbers that no other process has.
//
// crypto/rand gives the same bytes. It also links integers of any size and generators of its own, five packages that a
// program which only takes checkpoints does not need.
package random

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Fill fills b. Right after a boot it waits until the kernel has gathered enough. It panics if the kernel gives no
// bytes: a key must not be one that others can guess.
func Fill(b []byte) {
	for len(b) > 0 {
		n, err := unix.Getrandom(b, 0)
		if err == unix.ENOSYS { // an old kernel, or a sandbox
			n, err = fromFile(b)
		}
		switch err {
		case nil:
			b = b[n:]
		case unix.EINTR:
		default:
			panic("the kernel gives no random bytes: " + err.Error())
		}
	}
}

// fromFile fills b from the device of the kernel's generator.
func fromFile(b []byte) (int, error) {
	f, err := os.Open("/dev/urandom")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.ReadFull(f, b)
}

// Text returns 26 letters and digits, which are 130 random bits.
func Text() string {
	b := make([]byte, 26)
	Fill(b)
	for i := range b {
		b[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[b[i]%32]
	}
	return string(b)
}
