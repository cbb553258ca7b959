package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/handshake"
)

// ReadKey reads a key file: 64 hexadecimal digits. It belongs to the user of this
// process, or to root, and others are not able to read it.
func ReadKey(file string) (k Key, err error) {
	// a pipe in its place blocks no call
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return k, fmt.Errorf("key of the GPU server: %w (`holdfast gpud` makes it; copy it to this machine)", err)
	}
	defer f.Close()
	if err := private(f); err != nil {
		return k, err
	}
	b := make([]byte, 2*handshake.KeyBytes+2)
	n, err := io.ReadFull(f, b)
	if b = b[:n]; err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return k, fmt.Errorf("key of the GPU server: %w", err)
	}
	if n, err := hex.Decode(k[:], []byte(strings.TrimSpace(string(b)))); err != nil || n != handshake.KeyBytes {
		return k, fmt.Errorf("key file %s: want %d hexadecimal digits", file, 2*handshake.KeyBytes)
	}
	return k, nil
}

// private reports whether a key file is its owner's alone, and the owner one that this
// process trusts.
func private(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("key of the GPU server: %w", err)
	}
	switch s, ok := info.Sys().(*syscall.Stat_t); {
	case !info.Mode().IsRegular():
		return fmt.Errorf("key file %s is not a regular file", f.Name())
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("other users can read key file %s: chmod 600 %[1]s", f.Name())
	case ok && s.Uid != 0 && int(s.Uid) != os.Geteuid():
		return fmt.Errorf("key file %s belongs to user %d, not to the user of this process: make a copy of your own",
			f.Name(), s.Uid)
	}
	return nil
}

// EnsureKey is ReadKey of a file that is made when it is not there.
func EnsureKey(file string) (Key, error) {
	k, err := ReadKey(file)
	if !errors.Is(err, os.ErrNotExist) {
		return k, err
	}
	k = handshake.NewKey()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return k, fmt.Errorf("make the key's directory: %w", err)
	}
	if err := publish(file, k); errors.Is(err, os.ErrExist) {
		return ReadKey(file) // another server was quicker
	} else if err != nil {
		return k, fmt.Errorf("write key file: %w", err)
	}
	return k, nil
}

// publish writes a key so that no process sees half of it, unless there is one.
func publish(file string, k Key) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hex.EncodeToString(k[:]) + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), file)
}
