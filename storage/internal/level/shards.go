package level

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// OpenShard opens the file of an epoch in which a shard lies, whose length must be right.
func OpenShard(l Epochs, e format.Epoch, name string, info *format.ShardInfo) (f vfs.File, file string, err error) {
	f, file, err = l.Open(e, name)
	if err != nil {
		return nil, "", err
	}
	n, err := f.Size()
	end := info.Base + info.ShardBytes
	if err == nil && (n < end || n > info.ShardBytes && info.Pack == format.NoPack) {
		err = &format.CorruptError{File: file, Len: n,
			Reason: fmt.Sprintf("file has %d bytes, the shard ends at %d", n, end)}
	}
	if err != nil {
		return nil, "", errors.Join(err, f.Close())
	}
	return f, file, nil
}

// Probe checks the length and the footer of a rank's shard.
func Probe(l Epochs, m *format.Manifest, rank int) error {
	info, err := m.Shard(rank)
	if err != nil {
		return err
	}
	return ProbeShard(l, m.Epoch, &info)
}

// ProbeShard is Probe for an entry of the manifest.
func ProbeShard(l Epochs, e format.Epoch, info *format.ShardInfo) error {
	f, file, err := OpenShard(l, e, info.FileName(), info)
	if err != nil {
		return err
	}
	_, err = format.ReadCommitted(file, io.NewSectionReader(f, info.Base, info.ShardBytes), e, info)
	return errors.Join(err, f.Close())
}

// SyncFile makes the bytes of a file of an epoch durable that another process has written.
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

// NamesOf lists the files of an epoch's directory; none if it does not exist.
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

// OriginsIn lists the earlier epochs that a shard file refers to, by its index; none if that cannot be read.
func OriginsIn(l Epochs, e format.Epoch, name string) []format.Epoch {
	f, file, err := l.Open(e, name)
	if err != nil {
		return nil
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil
	}
	_, idx, err := format.ReadShardIndex(file, f, n)
	if err != nil {
		return nil
	}
	return idx.Origins()
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
