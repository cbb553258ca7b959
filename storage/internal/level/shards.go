package level

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Probe checks length and footer of a shard.
func Probe(l Epochs, m *format.Manifest, rank int) error {
	info, err := m.Shard(rank)
	if err != nil {
		return err
	}
	return ProbeShard(l, m.Epoch, info)
}

// ProbeShard is Probe by the manifest's entry alone.
func ProbeShard(l Epochs, e format.Epoch, info format.ShardInfo) error {
	x, err := OpenExtent(l, e, info.FileName(), info)
	if err != nil {
		return err
	}
	_, err = x.Footer(e, info.Rank)
	return errors.Join(err, x.Close())
}

// Uncommitted describes a shard file that no manifest names yet.
func Uncommitted(l Epochs, e format.Epoch, rank int) (info format.ShardInfo, idx *format.Index, err error) {
	f, file, err := l.Open(e, format.ShardName(rank))
	if err != nil {
		return info, nil, err
	}
	c, err := shard.OpenFile(file, f)
	if err != nil {
		return info, nil, errors.Join(err, f.Close())
	}
	return c.At.Info, c.Index, c.Close()
}

// OpenCommitted opens the shard file that a manifest names and checks that it
// is that one.
func OpenCommitted(l Epochs, e format.Epoch, info format.ShardInfo) (*shard.Extent, error) {
	info.Pack, info.Base = format.NoPack, 0
	x, err := OpenExtent(l, e, format.ShardName(info.Rank), info)
	if err != nil {
		return nil, err
	}
	if _, err := x.Footer(e, info.Rank); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// locate opens the file that the manifest names.
func locate(ctx context.Context, l Epochs, e format.Epoch, rank int) (*shard.Extent, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := l.ReadManifest(e)
	if err != nil {
		return nil, err
	}
	return LocateIn(l, m, rank)
}

// LocateIn opens the file that a manifest names.
func LocateIn(l Epochs, m *format.Manifest, rank int) (*shard.Extent, error) {
	info, err := m.Shard(rank)
	if err != nil {
		return nil, err
	}
	return OpenExtent(l, m.Epoch, info.FileName(), info)
}

// OpenExtent opens a shard in a file of an epoch, whose length must be right.
func OpenExtent(l Epochs, e format.Epoch, name string, info format.ShardInfo) (*shard.Extent, error) {
	f, file, err := l.Open(e, name)
	if err != nil {
		return nil, err
	}
	n, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	short := n < info.Base+info.ShardBytes
	if long := info.Pack == format.NoPack && n > info.ShardBytes; short || long {
		err := &format.CorruptError{File: file, Len: n,
			Reason: fmt.Sprintf("file has %d bytes, the shard ends at %d", n, info.Base+info.ShardBytes)}
		return nil, errors.Join(err, f.Close())
	}
	return &shard.Extent{
		ReaderAt: io.NewSectionReader(f, info.Base, info.ShardBytes), Closer: f,
		Name: file, N: info.ShardBytes, Base: info.Base, Info: info,
	}, nil
}

// SyncFile makes durable what another process has written to a file of an epoch.
func SyncFile(l Epochs, e format.Epoch, name string) error {
	f, _, err := l.Open(e, name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// RanksHere lists the ranks whose shards lie in this directory.
func RanksHere(l Epochs, m *format.Manifest) ([]int, error) {
	names, err := NamesOf(l, m.Epoch)
	var out []int
	for r := range m.Shards {
		if names[m.Shards[r].FileName()] {
			out = append(out, r)
		}
	}
	return out, err
}

// NamesOf lists what lies in an epoch's directory; nothing if it is not there.
func NamesOf(l Epochs, e format.Epoch) (map[string]bool, error) {
	list, err := l.Files(e)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, err
	}
	names := map[string]bool{}
	for _, f := range list {
		names[f.Name] = true
	}
	return names, nil
}

// ReadPack reads the index of a pack.
func ReadPack(l Epochs, e format.Epoch, name string) (infos []format.ShardInfo, err error) {
	f, file, err := l.Open(e, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	foot, err := format.ReadFooterOf(format.PackMagic, file, f, n)
	if err != nil {
		return nil, err
	}
	b, err := foot.ReadIndexed(f)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, &format.CorruptError{File: file, Off: foot.IndexOff, Len: foot.IndexLen,
			Reason: "pack index: hash does not match"}
	}
	return format.DecodePackIndex(file, b)
}

// VerifyPack checks what a pack says of itself and that nothing else is in it.
func VerifyPack(l Epochs, m *format.Manifest, name string) []error {
	infos, err := ReadPack(l, m.Epoch, name)
	if err != nil {
		return []error{err}
	}
	var end int64
	for i := range infos {
		entry, err := m.Shard(infos[i].Rank)
		if err != nil || entry.Index != infos[i].Index || entry.Base != infos[i].Base || entry.FileName() != name {
			return []error{&format.CorruptError{File: FileOf(l, m.Epoch, name),
				Reason: "pack index does not agree with the manifest"}}
		}
		end = max(end, entry.Base+entry.ShardBytes)
	}
	x, err := OpenExtent(l, m.Epoch, name, format.ShardInfo{ShardBytes: end, Pack: 0})
	if err != nil {
		return []error{err}
	}
	defer x.Close()
	return x.VerifyTail(end)
}
