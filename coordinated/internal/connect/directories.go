package connect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// ShareWait is the time in which a node must see another one's writes: file systems cache directories.
const ShareWait = 30 * time.Second

// Directories finds out which directories the ranks share. It asks the file system, not the settings.
type Directories struct {
	Ranks    Ranks
	Topology *Topology
	Files    vfs.FS
	Log      *slog.Logger
}

// Blind lists the nodes that do not see another node's writes to a directory within wait: rank 0 writes a file of a
// random name, and one rank of each other node looks for it. Collective.
func (d *Directories) Blind(ctx context.Context, dir string, wait time.Duration) (nodes []string, err error) {
	me := d.Topology.Rank
	nonce := make([]byte, 6)
	if me == 0 {
		random.Fill(nonce)
	}
	if err := Broadcast(d.Ranks, nonce); err != nil {
		return nil, fmt.Errorf("check the global directory: %w", err)
	}
	// The name is that of a file in the making: a later start clears it away.
	file := filepath.Join(dir, "holdfast.shared.r000000."+hex.EncodeToString(nonce)+".tmp")
	if me == 0 {
		err = touch(d.Files, file)
	}
	if err := Agree(d.Ranks, "write to the global directory", err); err != nil {
		return nil, err
	}
	blind := ""
	if d.Topology.First() && !d.sees(ctx, file, wait) {
		blind = d.Topology.Node()
	}
	all, err := Exchange(d.Ranks, blind)
	if me == 0 {
		if rerr := d.Files.Remove(file); rerr != nil {
			d.Log.Warn("holdfast: cannot remove the test file from the global directory", "error", rerr)
		}
	}
	return slices.DeleteFunc(all, func(n string) bool { return n == "" }), err
}

// sees looks for a file until it is there.
func (d *Directories) sees(ctx context.Context, file string, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		// A listing makes a network file system look again.
		if _, err := d.Files.Stat(file); err == nil {
			return true
		}
		_, _ = d.Files.ReadDir(filepath.Dir(file)) // only for its effect
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

func touch(fsys vfs.FS, name string) error {
	f, err := fsys.Create(name, false)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), fsys.SyncDir(filepath.Dir(name)))
}

// dirMark is how long the mark of a directory is.
const dirMark = 16

// Writers finds the rank that writes the manifests of each rank's directory of a level, by level and rank: the first of
// those ranks of a node that have the same directory. A manifest describes all ranks, so only writers need the reports
// of all. dirs are this rank's, by level; each rank names the same levels. Collective.
func (d *Directories) Writers(levels []string, dirs map[string]string) (map[string][]int, error) {
	if len(levels) == 0 {
		return nil, nil
	}
	var mine []byte
	for _, level := range levels {
		mine = append(mine, markOf(vfs.Identity(d.Files, dirs[level]))...)
	}
	all := make([]byte, len(mine)*d.Ranks.Size())
	if err := d.Ranks.Allgather(all, mine); err != nil {
		return nil, fmt.Errorf("find the ranks that share directories: %w", err)
	}
	out := map[string][]int{}
	for i, level := range levels {
		marks := make([][dirMark]byte, d.Ranks.Size())
		for r := range marks {
			copy(marks[r][:], all[r*len(mine)+i*dirMark:])
		}
		out[level] = firstOfEach(d.Topology.Nodes, marks)
	}
	return out, nil
}

// markOf returns a short form of an identity; zero without one.
func markOf(identity string) []byte {
	if identity == "" {
		return make([]byte, dirMark)
	}
	sum := sha256.Sum256([]byte(identity))
	return sum[:dirMark]
}

// firstOfEach returns, by rank, the first rank on the same node with the same mark; a rank whose mark is zero has its
// own.
func firstOfEach(nodes []string, marks [][dirMark]byte) []int {
	type place struct {
		node string
		mark [dirMark]byte
	}
	first, out := map[place]int{}, make([]int, len(marks))
	for r := range marks {
		p := place{nodes[r], marks[r]}
		f, known := first[p]
		if !known || p.mark == [dirMark]byte{} {
			f = r
		}
		if !known {
			first[p] = f
		}
		out[r] = f
	}
	return out
}
