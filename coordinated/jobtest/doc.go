// Package jobtest has jobs on simulated ranks for the tests of the rooms of coordinated.
package jobtest
