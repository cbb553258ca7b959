package storage

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/peer"
)

// openPacks are the packs in the making that a flusher has open, for itself and for the other ranks of its node.
type openPacks struct {
	mu     sync.Mutex
	server *peer.Handover    // guarded by mu; nil: no rank can ask
	files  map[int]*openPack // guarded by mu: by the first rank in the pack
	closed bool              // guarded by mu
}

// openPack is an open pack.
type openPack struct {
	ready chan struct{} // closed when file and err are there
	file  vfs.File
	err   error
}

// Lead makes this rank the one that opens the packs for all ranks of its node; the others find it by its Size.
// Without it, or after an error, each opens them by itself, which takes longer on a parallel file system and is
// right as well. So it is from the next time on where a rank could not be handed a file; then its Write is an error.
func (p *Part) Lead() error {
	if p.to.Traits().Single || p.store.noHandover.Load() {
		return nil // no pack has two writers, or no file is handed over
	}
	server, err := peer.HandOver(func(first uint32) (syscall.Conn, error) {
		f, err := p.open(int(first), true, format.PackName(int(first)))
		if err != nil {
			return nil, err
		}
		c, ok := f.(syscall.Conn)
		if !ok {
			return nil, errors.ErrUnsupported
		}
		return c, nil
	})
	if err != nil {
		return err
	}
	p.packs.mu.Lock()
	defer p.packs.mu.Unlock()
	p.packs.server = server
	return nil
}

// open opens the pack whose first rank is first, once: a new one for all ranks, or by the name that all ranks open it
// by.
func (p *Part) open(first int, forAll bool, name string) (vfs.File, error) {
	o := &p.packs
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil, ErrClosed
	}
	x, found := o.files[first]
	if !found {
		x = &openPack{ready: make(chan struct{})}
		if o.files == nil {
			o.files = map[int]*openPack{}
		}
		o.files[first] = x
	}
	o.mu.Unlock()
	if found {
		<-x.ready
		return x.file, x.err
	}
	if forAll {
		x.file, x.err = p.to.packs().Make(p.epoch, name, p.spec.Room)
	} else {
		x.file, x.err = p.to.packs().Join(p.epoch, name, p.spec.Room)
	}
	close(x.ready)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed && x.err == nil { // the file system was so slow that Close did not wait
		return nil, errors.Join(ErrClosed, x.file.Close())
	}
	return x.file, x.err
}

// Close ends the part: no rank of the node writes or seals the packs any more. It waits for no file system.
// Further calls do nothing.
func (p *Part) Close() error {
	o := &p.packs
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	var err error
	if o.server != nil {
		err = o.server.Close()
	}
	for _, x := range o.files {
		select {
		case <-x.ready:
			if x.err == nil {
				err = errors.Join(err, x.file.Close())
			}
		default: // open closes it
		}
	}
	return err
}

// writeInto has fill write this rank's place in a pack, durably unless the flusher makes it so: direct writes to
// its file, which is one for all, are synced by Seal.
func (p *Part) writeInto(ctx context.Context, n *NodePack, k *nodePackFile, fill func(f vfs.File) error) error {
	f, shared, err := p.packFile(ctx, n, k)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil && !(shared && f.Direct()) {
		err = f.Sync()
	}
	if n.Ranks[0] == p.store.opt.Rank {
		return err // Seal goes on with the file
	}
	return errors.Join(err, f.Close())
}

// packFile opens a pack. shared reports that the flusher has the same file open.
func (p *Part) packFile(ctx context.Context, n *NodePack, k *nodePackFile) (f vfs.File, shared bool, err error) {
	name, shared := n.nameOf(k, p.store.opt.Run), n.byFlusher()
	switch {
	case n.Ranks[0] == p.store.opt.Rank:
		f, err = p.open(k.first(), shared, name)
		return f, shared, err
	case !shared:
		f, err = p.to.packs().Join(n.Epoch, name, p.spec.Room)
		return f, false, err
	}
	file, err := peer.AskFor(ctx, string(n.Sizes[0][sizeBytes:]), uint32(k.first()))
	if err == nil {
		f, err = vfs.Adopt(p.store.opt.fs, file, filepath.Join(p.to.Path(), format.EpochName(n.Epoch), name))
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported): // it is open there, so it has been made
		f, err = p.to.packs().Join(n.Epoch, name, p.spec.Room)
		return f, false, err
	case err != nil && ctx.Err() == nil && !errors.Is(err, peer.ErrRefused):
		p.store.noHandover.Store(true)
		p.store.log.Debug("holdfast: the ranks of this node will open its packs by themselves", "epoch", n.Epoch,
			"why", err)
	}
	return f, true, err
}
