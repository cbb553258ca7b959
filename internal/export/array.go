package export

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/npy"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// arrayIn finds the ranks' parts of the global array or replicated value with a name in an epoch; nil: there is none.
func arrayIn(list []checkpoints.EpochInfo, e storage.Epoch, name string) (infos []storage.ShardInfo,
	all []layout.Owned) {
	for i := range list {
		if list[i].Epoch != e || list[i].Size == 0 {
			continue
		}
		infos = list[i].Shards
		for r := range infos {
			if l := localOf(infos[r].Layout, name); l != nil {
				all = append(all, layout.Owned{Rank: r, Local: l})
			}
		}
		return infos, all
	}
	return nil, nil
}

func localOf(l *storage.Layout, name string) *layout.Local {
	for i := 0; l != nil && i < len(l.Arrays); i++ {
		if l.Arrays[i].Name == name {
			return &l.Arrays[i]
		}
	}
	return nil
}

// storing returns the first rank that stores a replicated value.
func storing(all []layout.Owned) []int {
	for i := range all {
		if len(all[i].Parts) > 0 {
			return []int{all[i].Rank}
		}
	}
	return []int{0} // it has no bytes
}

// nameArrays gives a shard's parts of global arrays the names and types that the program gave them.
func nameArrays(items []coordinated.Saved, l *storage.Layout) {
	for i := 0; l != nil && i < len(l.Arrays); i++ {
		x := &l.Arrays[i]
		for k := range items {
			if items[k].Section == x.Section && items[k].Name == x.Section {
				items[k].Name, items[k].Kind = x.Name, "replicated "+x.Type
				switch {
				case x.Keyed():
					items[k].Kind = "items " + x.Type
				case x.Kind != layout.Replicated:
					items[k].Kind = fmt.Sprintf("part of %s %v", x.Type, x.Dims)
				}
			}
		}
	}
}

// array writes a global array or a replicated value to a file for NumPy. Each rank's share is read in
// pieces, verified, and written to its places.
func (x *export) array(all []layout.Owned) ([]Row, error) {
	if err := layout.Check(all); err != nil {
		return nil, fmt.Errorf("epoch %d: %w: %w", x.epoch, storage.ErrCorrupt, err)
	}
	shown := all[0].Array
	if shown.Keyed() {
		return nil, fmt.Errorf("%q is a set of items: give a file NAME.npz", shown.Name)
	}
	whole := layout.Box(make([]int64, len(shown.Dims)), shown.Dims)
	if shown.Kind == layout.Replicated {
		var err error
		if shown, err = plain(shown); err != nil {
			return nil, err
		}
		only := storing(all)[0]
		all = slices.DeleteFunc(all, func(o layout.Owned) bool { return o.Rank != only })
	}
	head := npy.Head(npy.Type(shown.Type, shown.Elem), shown.Dims)
	row := Row{Epoch: uint64(x.epoch), Name: shown.Name, Type: fmt.Sprintf("%s %v", shown.Type, shown.Dims),
		Section: shown.Section, File: x.File, Bytes: shown.Elem}
	for _, d := range shown.Dims {
		row.Bytes *= d
	}
	err := cli.WriteFile(x.File, x.Force, func(f *os.File) error {
		if _, err := f.Write(head); err != nil {
			return err
		}
		if err := f.Truncate(int64(len(head)) + row.Bytes); err != nil {
			return err
		}
		for i := range all {
			if len(all[i].Parts) == 0 {
				continue
			}
			s := &share{x: x, of: &all[i], whole: whole, file: f, begin: int64(len(head))}
			if err := s.write(); err != nil {
				return fmt.Errorf("rank %d of epoch %d: %w", all[i].Rank, x.epoch, err)
			}
		}
		return nil
	})
	return []Row{row}, err
}

// plain describes the bytes of a replicated value as an array.
func plain(a layout.Array) (layout.Array, error) {
	bytes := a.Dims[0]
	a.Dims = nil
	elem, slice := strings.CutPrefix(a.Type, "slice ")
	if !slice {
		elem, _ = strings.CutPrefix(a.Type, "value ")
	}
	size := npy.Size(elem)
	if size == 0 || bytes%size != 0 || !slice && bytes != size {
		return a, fmt.Errorf("%q is a %s: NumPy has no type for it; give a file of another name than *.npy", a.Name,
			a.Type)
	}
	if slice {
		a.Dims = []int64{bytes / size}
	}
	a.Type, a.Elem = elem, size
	return a, nil
}

// fetch opens a rank's shard of the attempt that the manifest is of. The caller closes it.
func (x *export) fetch(rank int) (*storage.Shard, error) {
	sh, err := x.view.Fetch(x.ctx, x.epoch, rank)
	if err == nil && sh.Digest() != x.infos[rank].Digest {
		err = fmt.Errorf("the directories have different attempts at the epoch: %w", storage.ErrCorrupt)
		err = errors.Join(err, sh.Close())
	}
	return sh, err
}

// share is one rank's part of an export under way.
type share struct {
	x     *export
	of    *layout.Owned
	whole layout.Part // the array
	file  *os.File
	begin int64 // of the data in it

	sh   *storage.Shard
	read []byte // bytes of the section that were read last, from at on
	at   int64
}

// write reads the rank's part of the array and writes it to its places.
func (s *share) write() (err error) {
	if s.sh, err = s.x.fetch(s.of.Rank); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.sh.Close()) }()
	base, size := int64(0), s.of.Elem
	visit := func(from, to, n int64) error { return s.copy(from*size, to*size, n*size) }
	for i := range s.of.Parts {
		p := &s.of.Parts[i]
		if err := layout.Meet(p, layout.Dense(p, base), &s.whole, layout.Dense(&s.whole, 0), visit); err != nil {
			return err
		}
		base += p.Elems()
	}
	s.x.warn(s.sh)
	return nil
}

// copy copies n bytes of the section to a place in the data. from never descends within a part.
func (s *share) copy(from, to, n int64) error {
	for n > 0 {
		if from < s.at || from >= s.at+int64(len(s.read)) {
			if err := s.next(from); err != nil {
				return err
			}
		}
		b := s.read[from-s.at:]
		b = b[:min(n, int64(len(b)))]
		if _, err := s.file.WriteAt(b, s.begin+to); err != nil {
			return err
		}
		from, to, n = from+int64(len(b)), to+int64(len(b)), n-int64(len(b))
	}
	return nil
}

func (s *share) next(off int64) error {
	if err := s.x.ctx.Err(); err != nil {
		return err
	}
	const unit = storage.ChunkBytes // is verified whole
	s.at = off / unit * unit
	n := min(pieceBytes, s.of.Elems()*s.of.Elem-s.at)
	if int64(cap(s.read)) < n {
		s.read = make([]byte, n)
	}
	s.read = s.read[:n]
	if err := s.sh.ReadAt(s.x.ctx, s.of.Section, s.read, s.at); err != nil {
		return err
	}
	s.x.Copied.Add(n)
	return nil
}
