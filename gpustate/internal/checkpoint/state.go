package checkpoint

import (
	"crypto/rand"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// State is a device as checkpoints see it. Its methods are called while the device is stopped, unless they say
// otherwise.
type State struct {
	object.Table

	Session    *Session
	Generation atomic.Uint64 // grows when handles become others
	Filled     bool          // a restore has written to memory
	Limit      int64         // of captures' device memory, below 0 for none
	Reserve    int64         // what captures leave free

	keyOnce sync.Once
	key     *chunkhash.Key // of captures' hashes

	// shadows is taken after all others but Capture.mu.
	shadows  sync.Mutex
	captures map[*Capture]struct{} // that may have bytes on the device
}

func (d *State) Init(drv driver.Device) {
	d.Table.Init()
	d.Session, d.Limit, d.Reserve, d.captures = NewSession(drv), -1, reserve, map[*Capture]struct{}{}
}

// HashKey is the key of all hashes of this Device.
func (d *State) HashKey() *chunkhash.Key {
	d.keyOnce.Do(func() {
		var seed [32]byte
		_, _ = rand.Read(seed[:]) // it never fails
		d.key = chunkhash.NewKey(seed)
	})
	return d.key
}
