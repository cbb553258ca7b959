// Package jobtest has jobs on simulated ranks for the tests of the rooms of coordinated, and the tests that look at
// whole jobs: checkpoints at every moment, kills at every step, restarts by other numbers of ranks, damage.
package jobtest
