package level

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

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
