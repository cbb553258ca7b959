// Package messages tests messages of device memory between two ranks under MPI, with devices as
// programs have them: through host memory, and handed to MPI where that takes them. The test binary
// is the rank program, too, so it is all that a machine with GPUs needs:
//
//	go test -c -o bin/messages.test ./test/messages
//	HOLDFAST_TEST_GPU=1 bin/messages.test -test.run TestCUDA -test.v
package messages
