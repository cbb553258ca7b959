package program

import "github.com/holdfast-hpc/holdfast/storage"

// SavedEpoch is what this rank saved in an epoch, by name.
type SavedEpoch struct {
	Epoch storage.Epoch
	Saved map[string]SavedArray
	Err   error // why it cannot be read
}

// SavedArray is what an epoch has of one array.
type SavedArray struct {
	Layout string // of an element, as in Array; empty: it is something else
	Bytes  int64
	Inline []byte // if they are few
}

// Start is what a program that another process has started than this one says of itself: what HOLDFAST_SUPERVISOR
// tells it, its step of Slurm, the name of its file, whether it starts over, and whether it continues epochs of other
// numbers of ranks.
type Start struct {
	Supervisor, Step, Program string
	Fresh, Elastic            bool
}
