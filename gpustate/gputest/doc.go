// Package gputest is the conformance suite that every driver of gpustate
// passes, and the machinery to run it on all platforms of a machine.
//
// A platform is a device together with the environment that its libraries need
// before they are loaded. The suite therefore runs each platform in a process
// of its own: the test binary starts itself again. Such a binary is all that a
// machine with GPUs needs:
//
//	go test -c -o bin/gputest ./gpustate/gputest
//	bin/gputest -test.v
//
// TestConformance runs Suite on every platform. TestMatrix takes a capture of
// every object kind on each platform, kills that process, restores the capture
// on every platform and prints which pairs work.
//
// A test that imports the package, for its effects, has the device "fake": plain Go,
// for tests alone.
package gputest
