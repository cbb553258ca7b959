package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// How a directory is measured: so many requests at a time, as a shard is written.
const (
	rateRequests = 4
	rateBlock    = 4 << 20
)

// rates are a directory's speeds for this node, with several requests at a time.
type rates struct {
	Write, Read float64 // bytes a second: synced, and past the page cache
	Direct      bool
}

// measure makes a directory in dir, works in it and removes it.
func measure(dir string) (m rates, err error) {
	work := filepath.Join(dir, fmt.Sprintf(".holdfast-doctor-%d", os.Getpid()))
	if err := os.Mkdir(work, 0o700); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	return m, m.bandwidth(filepath.Join(work, "data"))
}

// bandwidth writes and syncs a file as storage does, and reads it back past the page cache.
func (m *rates) bandwidth(name string) (err error) {
	f, err := vfs.OS{}.Create(name, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	m.Direct = f.Direct()
	buf := aligned(rateRequests * rateBlock)
	for i := range buf {
		buf[i] = byte(i*7 + i>>16)
	}
	if m.Write, err = blocksPerSecond(buf, f.WriteAt, f.Sync); err != nil {
		return err
	}
	past, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECT, 0)
	if errors.Is(err, syscall.EINVAL) {
		past, err = os.Open(name)
	}
	if err != nil {
		return err
	}
	defer past.Close()
	_ = unix.Fadvise(int(past.Fd()), 0, 0, unix.FADV_DONTNEED) // advice: if there is no O_DIRECT
	m.Read, err = blocksPerSecond(buf, past.ReadAt, func() error { return nil })
	return err
}

// blocksPerSecond moves probeBytes, several blocks at a time, and ends with end.
func blocksPerSecond(buf []byte, move func([]byte, int64) (int, error), end func() error) (float64, error) {
	var next atomic.Int64
	var failed [rateRequests]error
	start := time.Now()
	var wg sync.WaitGroup
	for i := range rateRequests {
		wg.Go(func() {
			for failed[i] == nil {
				off := (next.Add(1) - 1) * rateBlock
				if off >= probeBytes {
					return
				}
				_, failed[i] = move(buf[i*rateBlock:][:rateBlock], off)
			}
		})
	}
	wg.Wait()
	err := errors.Join(append(failed[:], end())...)
	return probeBytes / time.Since(start).Seconds(), err
}
