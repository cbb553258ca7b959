// Package scale counts what epochs and restarts of very many ranks ask of the file systems, to see what grows with
// their number. It is all tests.
//
// # What is real and what is not
//
// The ranks of the first two nodes are real: each has a Store and a Persister, and works on
// real files through a counter. All other ranks are simulated. A simulated rank votes as the
// rank at its place on the second node does, with its own number, and its node's pack is an
// empty file. Manifests, votes and listings so have the length that they have in a job of
// that size.
//
// What the ranks of the second node do counts for every node but the first. Files that are
// removed are counted once.
package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/storage"
)

// Options says what is simulated.
type Options struct {
	Dir     string // for files; made by the caller, who removes it
	Ranks   int
	PerNode int // ranks on a node; 0 means 8
	Bytes   int // that each rank protects; 0 means 64 KiB

	all bool // ranks are real
}

// Result is what the global directory was asked for.
type Result struct {
	Ranks, Nodes int
	Epoch        Count // one epoch, of all ranks together
	Restart      Count // from Open until the restored epoch is repaired
	Manifest     int64 // bytes of one manifest
	Manifests    int64 // bytes of all that are there before the restart
	Largest      int64 // bytes of the largest file
	LocalVotes   Told  // in an epoch, to agree on it at local
	GlobalVotes  Told  // and at global, where rank 0 writes the manifest
}

const (
	warmUp   = 4 // epochs before what is counted: retention has then begun
	measured = 2
)

// Run takes epochs of o.Ranks ranks at the levels local and global, and then restarts them
// all with empty local directories.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.PerNode == 0 {
		o.PerNode = 8
	}
	if o.Bytes == 0 {
		o.Bytes = 64 << 10
	}
	if o.Ranks < 1 || o.PerNode < 1 {
		return Result{}, fmt.Errorf("got %d ranks, %d on a node, want at least 1", o.Ranks, o.PerNode)
	}
	w := newWorld(o)
	res := Result{Ranks: o.Ranks, Nodes: w.nodes}
	if err := w.makeDirs(); err != nil {
		return res, err
	}
	if err := w.start(ctx, "first"); err != nil {
		return res, errors.Join(err, w.end())
	}
	w.take()
	for e := storage.Epoch(1); e <= warmUp+measured; e++ {
		if e == warmUp+1 {
			w.take()
			w.hall.take()
		}
		if err := w.epoch(e); err != nil {
			return res, errors.Join(fmt.Errorf("epoch %d: %w", e, err), w.end())
		}
	}
	res.Epoch.add(1.0/measured, w.take())
	local, global := w.hall.take()
	res.LocalVotes, res.GlobalVotes = local.over(measured), global.over(measured)
	var err error
	if err = w.lengths(warmUp+measured, &res); err != nil {
		return res, errors.Join(err, w.end())
	}
	if err := errors.Join(w.end(), w.forgetLocal()); err != nil {
		return res, err
	}
	if err := w.start(ctx, "second"); err != nil {
		return res, errors.Join(err, w.end())
	}
	err = w.restart(ctx)
	res.Restart = w.take()
	return res, errors.Join(err, w.end())
}

// lengths notes how long the manifest of an epoch at global is, all manifests there, and the longest file.
func (w *world) lengths(e storage.Epoch, res *Result) error {
	return filepath.WalkDir(w.global(), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		res.Largest = max(res.Largest, info.Size())
		if filepath.Base(path) == "manifest" {
			res.Manifests += info.Size()
		}
		if path == filepath.Join(w.global(), epochDir(e), "manifest") {
			res.Manifest = info.Size()
		}
		return nil
	})
}

func epochDir(e storage.Epoch) string { return fmt.Sprintf("epoch-%010d", e) }
