package opencl

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// area is memory of the program that this process has mapped too: what a mapped buffer
// shows, or slots. Transfers from and to it are not copied on the way.
type area struct {
	number uint64
	file   *os.File
	bytes  []byte

	mu    sync.Mutex
	ends  []func() error // of devices that know it
	known []*device      // those
	users []*event       // commands that may use it
}

// maxAreas bounds the pieces of memory that a program shares at a time.
const maxAreas = 65536

// areas are those of a program. The library counts them from 1.
type areas struct {
	mu   sync.Mutex
	last uint64
	list map[uint64]*area
	more chan struct{} // closed when one is added
}

// add takes in the next area; the file is the area's.
func (a *areas) add(f *os.File) error {
	b, err := mapSealed(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.list) >= maxAreas {
		return errors.Join(fmt.Errorf("%w: more than %d areas", wire.ErrProtocol, maxAreas), unix.Munmap(b), f.Close())
	}
	a.last++
	if a.list == nil {
		a.list = map[uint64]*area{}
	}
	a.list[a.last] = &area{number: a.last, file: f, bytes: b}
	if a.more != nil {
		close(a.more)
		a.more = nil
	}
	return nil
}

// use notes that a command uses the area until its event is complete.
func (a *area) use(e *event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.users) >= 64 {
		a.users = slices.DeleteFunc(a.users, func(e *event) bool { done, _ := e.done(); return done })
	}
	a.users = append(a.users, e)
}

// forget ends the use of the area by all devices.
func (a *area) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, end := range a.ends {
		_ = end() // a lost server has forgotten it
	}
	_ = unix.Munmap(a.bytes)
	_ = a.file.Close()
	a.ends, a.bytes = nil, nil
}

// forgetAll ends the use of all areas, of which no command uses one any more.
func (a *areas) forgetAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.list {
		one.forget()
	}
	a.list = nil
}

// mapSealed maps a whole file that no process can shrink.
func mapSealed(f *os.File) ([]byte, error) {
	b, err := shm.Map(f)
	if errors.Is(err, shm.ErrSize) {
		err = fmt.Errorf("%w: %w", wire.ErrProtocol, err)
	}
	return b, err
}
