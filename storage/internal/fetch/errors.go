package fetch

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// ShardError reports what failed on which shard.
type ShardError struct {
	Op    string // "put", "commit", "fetch", "flush", "discard" or "verify"
	Epoch format.Epoch
	Rank  int
	Level string
	Err   error
}

// Error names the operation, the epoch, the rank, the level and the cause.
func (e *ShardError) Error() string {
	return fmt.Sprintf("%s shard epoch=%d rank=%d level=%s: %v", e.Op, e.Epoch, e.Rank, e.Level, e.Err)
}

// Unwrap returns the cause.
func (e *ShardError) Unwrap() error { return e.Err }
