package level

import (
	"sync"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// knownDirs are the directories of epochs that this process has made or looked at: no other user can have put others in
// their place, since no other may write to the directory that they are in. Who reads data there looks again.
type knownDirs struct {
	mu   sync.Mutex
	dirs map[format.Epoch]bool // guarded by mu
}

func (k *knownDirs) has(e format.Epoch) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dirs[e]
}

func (k *knownDirs) add(e format.Epoch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dirs == nil {
		k.dirs = map[format.Epoch]bool{}
	}
	k.dirs[e] = true
}

func (k *knownDirs) drop(e format.Epoch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.dirs, e)
}
