//go:build !race

package mpitest

const raceDetector = false
