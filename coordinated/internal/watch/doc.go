// Package watch finds out what main threads are at, while they may be inside MPI: where in
// the program a call was made, whether one that polls counts as waiting, and which ranks
// wait for what cannot come. A Thread is what the library knows of its own of the main
// thread. The package looks and judges; what follows is coordinated's to decide.
package watch
