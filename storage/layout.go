package storage

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Epoch is the number of one global checkpoint. Numbers grow from one epoch to
// the next and are never used twice; 0 is no epoch.
type Epoch uint64

// Names in a level directory. They are part of the format.
const (
	markerName   = "holdfast.job"
	manifestName = "manifest"
	epochPrefix  = "epoch-"
	shardPrefix  = "rank-"
	shardSuffix  = ".shard"
	packPrefix   = "pack-"
	packSuffix   = ".shards"
	tempSuffix   = ".tmp"
)

func epochName(e Epoch) string { return fmt.Sprintf("%s%010d", epochPrefix, uint64(e)) }

// maxEpoch leaves room for those that follow the greatest name in a directory.
const maxEpoch = 1 << 62

// parseEpoch reads a directory name back; names that epochName does not make
// are not epochs.
func parseEpoch(name string) (Epoch, bool) {
	digits, ok := strings.CutPrefix(name, epochPrefix)
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || v == 0 || v > maxEpoch || epochName(Epoch(v)) != name {
		return 0, false
	}
	return Epoch(v), true
}

func shardName(rank int) string { return fmt.Sprintf("%s%06d%s", shardPrefix, rank, shardSuffix) }

// rowName is the file with row j of the parity that rank encoded.
func rowName(rank, j int) string { return fmt.Sprintf("%s%06d.parity-%d", shardPrefix, rank, j) }

// parseName reads rank and row back from the name of a shard (row -1) or of a
// parity row.
func parseName(name string) (rank, row int, ok bool) {
	digits, tail, _ := strings.Cut(strings.TrimPrefix(name, shardPrefix), ".")
	v, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		return 0, 0, false
	}
	if shardName(int(v)) == name {
		return int(v), -1, true
	}
	j, err := strconv.Atoi(strings.TrimPrefix(tail, "parity-"))
	if err != nil || j < 0 || rowName(int(v), j) != name {
		return 0, 0, false
	}
	return int(v), j, true
}

// parsePack reads the first rank back from the name of a pack.
func parsePack(name string) (first int, ok bool) {
	digits := strings.TrimSuffix(strings.TrimPrefix(name, packPrefix), packSuffix)
	v, err := strconv.ParseUint(digits, 10, 31)
	return int(v), err == nil && packName(int(v)) == name
}

func packName(first int) string { return fmt.Sprintf("%s%06d%s", packPrefix, first, packSuffix) }

// tempName is a name for a file in the making. It starts with the final name
// and names the rank that writes it, so that the rank's next start can clear
// away what a crash left behind, and only that.
func tempName(final string, rank int) string {
	var b [6]byte
	rand.Read(b[:])
	return fmt.Sprintf("%s.r%06d.%s%s", final, rank, hex.EncodeToString(b[:]), tempSuffix)
}

// isTempOf says whether name is a temporary file of rank.
func isTempOf(name string, rank int) bool {
	return strings.HasSuffix(name, tempSuffix) && strings.Contains(name, fmt.Sprintf(".r%06d.", rank))
}

func join(elem ...string) string { return filepath.Join(elem...) }
