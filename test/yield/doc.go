// Package yield has ranks under test give up their core while they wait.
//
// MPI libraries busy-wait. With more ranks than cores a rank then spends most of its time
// slices on looking for a message whose sender has no core: four ranks of MPICH on two cores
// take ten times the processor time that they need. A library that is loaded before MPI stands
// between it and the function that looks, and yields or sleeps whenever that has found nothing to
// do. Calls and their results stay the same; only what else the machine does meanwhile changes.
// Never for measurements.
package yield
