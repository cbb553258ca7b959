// Package parity lets a program protect its checkpoints by parity over groups of nodes, as the setting redundancy:
// parity:D+P asks for. A program imports it for that alone:
//
//	import _ "github.com/holdfast-hpc/holdfast/storage/parity"
//
// Without it a program contains no Reed-Solomon code, and the setting is an error at the start that names this import.
// Copies on other nodes (partner:K) need no import. The tool holdfast has it, and so have programs in other languages:
// holdfast node writes their checkpoints.
//
// The package has no calls, and nothing in it communicates: package storage does, at its level parity.
// storage.CheckParity reports, local to the program, whether the import is there.
package parity

import (
	"github.com/klauspost/reedsolomon"

	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
)

func init() { redundancy.Register(newCoder) }

func newCoder(data, rows, cores int) (redundancy.Coder, error) {
	return reedsolomon.New(data, rows, reedsolomon.WithMaxGoroutines(cores))
}
