package worker

import (
	"io"
	"sync"
)

// maxOutput bounds what a worker, its driver and its kernels print.
const maxOutput = 256 << 10

// bounded passes on so many bytes and drops the rest.
type bounded struct {
	to io.Writer

	mu   sync.Mutex
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := min(len(p), b.left); n > 0 {
		_, _ = b.to.Write(p[:n]) // a log that cannot be written holds up no worker
		if b.left -= n; b.left == 0 {
			_, _ = b.to.Write([]byte("\n(this worker's further output is dropped)\n"))
		}
	}
	return len(p), nil
}
