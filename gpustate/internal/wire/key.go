package wire

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ReadKey reads a key file: 64 hexadecimal digits. Others than its owner must not
// be able to read it.
func ReadKey(file string) (k Key, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return k, fmt.Errorf("key of the GPU server: %w (`holdfast gpud` makes it; copy it to this machine)", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return k, fmt.Errorf("key file %s can be read by others: chmod 600 %[1]s", file)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return k, fmt.Errorf("key of the GPU server: %w", err)
	}
	n, err := hex.Decode(k[:], []byte(strings.TrimSpace(string(b[:min(len(b), 2*KeyBytes+2)]))))
	if err != nil || n != KeyBytes {
		return k, fmt.Errorf("key file %s: want %d hexadecimal digits", file, 2*KeyBytes)
	}
	return k, nil
}

// EnsureKey is ReadKey of a file that is made when it is not there.
func EnsureKey(file string) (Key, error) {
	k, err := ReadKey(file)
	if !errors.Is(err, os.ErrNotExist) {
		return k, err
	}
	if _, err := rand.Read(k[:]); err != nil {
		return k, err
	}
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

// publish writes a key so that nobody sees half of it, unless there is one.
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
