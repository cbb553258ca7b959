package storage

var testInbound = newBuffers(64)

// Shared makes stores of one test process share buffers.
func Shared(o Options) Options {
	o.pool, o.inbound = testPool, testInbound
	return o
}
