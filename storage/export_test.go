package storage

// Shared makes stores of one test process share buffers.
func Shared(o Options) Options {
	o.pool = testPool
	return o
}
