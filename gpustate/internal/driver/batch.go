package driver

// Batcher is implemented by devices that take several commands at once faster than one after the other: each call costs
// the driver part of the processor's caches.
type Batcher interface {
	// NewBatch makes a Batch of the device, for one goroutine.
	NewBatch() Batch
}

// Batch issues launches and sets arguments.
type Batch interface {
	// Do does the steps in order, up to the first that fails: done is how many it did before, and err the error of
	// that one as Launch or SetArg would have given it. It keeps nothing of the steps.
	Do(steps []Step) (done int, err error)
}

// Step is a launch without a wait list on a lazy queue that is in order, or, without a Queue, an argument.
type Step struct {
	Queue, Kernel Handle
	Grid          Grid
	Index         int
	Arg           Arg
}
