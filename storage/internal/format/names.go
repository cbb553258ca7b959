package format

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// HistoryName is the file that records, at each level of a job, whether an epoch was ever committed anywhere. It tells
// a job that has lost all its checkpoints from one that has not begun.
const HistoryName = "holdfast.begun"

// Epoch is the number of one global checkpoint. Numbers grow from one epoch to
// the next and are never used twice; 0 is no epoch.
type Epoch uint64

// NewestFirst lists epochs, the newest first.
func NewestFirst(epochs iter.Seq[Epoch]) []Epoch {
	return slices.SortedFunc(epochs, func(a, b Epoch) int { return cmp.Compare(b, a) })
}

// Names in a level directory. They are part of the format.
const (
	MarkerName   = "holdfast.job"
	ManifestName = "manifest"
	epochPrefix  = "epoch-"
	shardPrefix  = "rank-"
	shardSuffix  = ".shard"
	packPrefix   = "pack-"
	packSuffix   = ".shards"
	TempSuffix   = ".tmp"
)

// EpochName returns the directory of an epoch.
func EpochName(e Epoch) string { return fmt.Sprintf("%s%010d", epochPrefix, uint64(e)) }

// MaxCounted is a number that no job counts up to, and maxEpoch the greatest that is read.
const (
	MaxCounted = 1 << 61
	maxEpoch   = 1 << 62
)

// ParseEpochName reads a directory name back; names that epochName does not make
// are not epochs.
func ParseEpochName(name string) (Epoch, bool) {
	digits, ok := strings.CutPrefix(name, epochPrefix)
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || v == 0 || v > maxEpoch || EpochName(Epoch(v)) != name {
		return 0, false
	}
	return Epoch(v), true
}

// ShardName returns the file of a rank's shard.
func ShardName(rank int) string { return fmt.Sprintf("%s%06d%s", shardPrefix, rank, shardSuffix) }

// RowName returns the file with row j of the parity that rank encoded.
func RowName(rank, j int) string { return fmt.Sprintf("%s%06d.parity-%d", shardPrefix, rank, j) }

// RowID names row j of the parity that a rank encoded.
type RowID struct{ Rank, J int }

// ParseName reads rank and row back from the name of a shard (row -1) or of a
// parity row.
func ParseName(name string) (rank, row int, ok bool) {
	digits, tail, _ := strings.Cut(strings.TrimPrefix(name, shardPrefix), ".")
	v, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		return 0, 0, false
	}
	if ShardName(int(v)) == name {
		return int(v), -1, true
	}
	j, err := strconv.Atoi(strings.TrimPrefix(tail, "parity-"))
	if err != nil || j < 0 || RowName(int(v), j) != name {
		return 0, 0, false
	}
	return int(v), j, true
}

// ParsePackName reads the first rank back from the name of a pack.
func ParsePackName(name string) (first int, ok bool) {
	digits := strings.TrimSuffix(strings.TrimPrefix(name, packPrefix), packSuffix)
	v, err := strconv.ParseUint(digits, 10, 31)
	return int(v), err == nil && PackName(int(v)) == name
}

// PackName returns the file of the pack whose first rank is given.
func PackName(first int) string { return fmt.Sprintf("%s%06d%s", packPrefix, first, packSuffix) }

const (
	ledgerPrefix = "epochs-"
	// LedgerLimit bounds the bytes of a ledger's file.
	LedgerLimit = 16 << 20
)

// LedgerName returns the file of a rank's ledger.
func LedgerName(rank int) string { return fmt.Sprintf("%s%06d", ledgerPrefix, rank) }

// IsLedger reports whether LedgerName makes the name.
func IsLedger(name string) bool {
	v, err := strconv.ParseUint(strings.TrimPrefix(name, ledgerPrefix), 10, 31)
	return err == nil && LedgerName(int(v)) == name
}

// Names of the levels, nearest first.
const (
	LevelLocal   = "local"   // a directory of the node: survives the program
	LevelPartner = "partner" // copies on other nodes: survives Copies nodes at once
	LevelParity  = "parity"  // Reed-Solomon over groups of nodes: survives Parity nodes of a group
	LevelGlobal  = "global"  // a directory of the parallel file system: survives the nodes
)

// LockName is the file by which a run of the job holds a level's directory. One rank made it and rewrites it at every
// beat, so that another run, on any node, sees that its owner lives. No clocks are compared.
const LockName = "holdfast.run"

// AttemptsPrefix begins the names that AttemptsName makes.
const AttemptsPrefix = "trials-"

// AttemptsName returns the file of a rank's restore attempts.
func AttemptsName(rank int) string { return fmt.Sprintf("%s%06d", AttemptsPrefix, rank) }
