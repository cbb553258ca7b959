package gpustate

import (
	"context"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
)

// Capture is the state of a device at one moment. It is complete when the
// Capture method returns it; some of the bytes may still be on the device, in a
// copy that the program cannot reach. Release it.
//
//	func Record() []byte       // the description of all objects, for Restore
//	func Contents() []Content  // the memory objects whose bytes it holds, in order of creation
//	// ReadAt copies bytes of content i from off on into all of dst. It may be
//	// called from several goroutines, while the program runs.
//	func ReadAt(ctx context.Context, i int, dst []byte, off int64) error
//	// Slice is the bytes of content i from off on when they lie in host memory in one
//	// piece, otherwise nil. It is valid until Release and must not be written to.
//	func Slice(i int, off, n int64) []byte
//	// Hashes computes, for each content in order, the hashes of its chunks that lie in
//	// device memory, there; others have the zero Hash. A device that cannot run the kernel
//	// gives an error that matches ErrUnsupported. The program may run meanwhile.
//	func Hashes(ctx context.Context) ([][]Hash, error)
//	// Release frees the capture's device memory; host memory of alloc may be reused. No
//	// ReadAt may be in progress. Further calls do nothing.
//	func Release() error
type Capture = checkpoint.Capture

// Content is the bytes of one memory object.
//
//	ID    uint64 // the object's, unique within the device
//	Name  string // the program's name, may be empty
//	Bytes int64
type Content = checkpoint.Content

// HashBytes is how much of a content one Hash is of; the last one of a content may be of less.
const HashBytes = chunkhash.Bytes

// Hash is 128 bits of a chunk of a content. Two chunks of one length and with equal hashes of one
// Device in one process have the same bytes: another result has a probability below 2^-126 for each
// comparison, whatever the bytes are. The zero Hash is that of no chunk: nothing is known.
type Hash = chunkhash.Sum

// StateBytes is the sum of the bytes of all memory objects: what a capture holds
// at most, besides its record.
func (d *Device) StateBytes() int64 {
	d.making.Lock()
	defer d.making.Unlock()
	var sum int64
	for _, e := range d.state.List {
		if e.Record.Mem.HasContents() {
			sum += e.Record.Mem.Bytes
		}
	}
	return sum
}

// Capture waits for all commands and takes the state of the device. Calls on
// the device's objects wait meanwhile.
//
// Bytes go into free device memory when there is room, which takes a hundredth of
// the time of copying them to the host; the rest goes into host memory. alloc gives
// that host memory: as many bytes as asked for, which belong to the capture until
// Release, or nil when it has no more; then the capture allocates memory. Give
// memory that has been used before: the first use of pages costs more than the
// copy.
//
// When ctx ends while commands are still running, Capture returns its cause and the
// program continues. When a restart could not tell the objects apart, the error
// matches ErrIdentity and names one of them.
func (d *Device) Capture(ctx context.Context, alloc func(bytes int) []byte) (*Capture, error) {
	if err := d.stop(ctx); err != nil {
		return nil, err
	}
	defer d.start()
	if err := d.state.Distinct(); err != nil {
		return nil, err
	}
	return d.state.Capture(ctx, alloc)
}

// LimitShadow bounds the device memory, in bytes, that captures may use for copies;
// the rest goes to the host while the program waits. A negative value, the default,
// allows all free memory; 0 allows none. CPU devices never use any, since their
// memory is the host's.
func (d *Device) LimitShadow(bytes int64) {
	d.making.Lock()
	defer d.making.Unlock()
	d.state.Limit = bytes
}
