// Package export writes the contents of an epoch to files: regions of ranks as they are, and global arrays and sets of
// items as NumPy reads them. Everything that it reads is verified, and a file gets its name when it is complete.
package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/npy"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// RankPattern stands for the number of the rank in the name of a file.
const RankPattern = "{rank}"

// Options name the exported data and its destination.
type Options struct {
	Section string // of ranks, or the name of an array or a value; empty: list all
	File    string // with RankPattern one for each rank; "-" is Stdout
	Rank    int    // whose share it is; -1: none is chosen
	Force   bool   // files that exist are replaced
	Stdout  io.Writer
	Warn    func(damage error) // that was read around
	Copied  *atomic.Int64      // bytes so far
}

// A Row is one line of export: a region of a rank, or a file that was written.
type Row struct {
	Epoch   uint64 `json:"epoch"`           // number of the epoch
	Rank    int    `json:"rank"`            // rank that the data is from
	Name    string `json:"name"`            // name under which the program protected it
	Type    string `json:"type,omitempty"`  // type of its elements
	Bytes   int64  `json:"bytes"`           // size in bytes
	Items   int    `json:"items,omitempty"` // number of items of a set with keys
	Section string `json:"section"`         // section of the shard that has it
	Offset  int64  `json:"offset"`          // byte in the section at which it begins
	File    string `json:"file,omitempty"`  // file that was written; absent: it was only listed
}

type export struct {
	Options
	ctx   context.Context
	view  *checkpoints.View
	epoch storage.Epoch
	infos []storage.ShardInfo // of the epoch; nil if no manifest can be read
}

// Run exports of an epoch of the list, which the view has.
func Run(ctx context.Context, v *checkpoints.View, list []checkpoints.EpochInfo, e storage.Epoch, o Options) (
	rows []Row, err error) {
	x := &export{Options: o, ctx: ctx, view: v, epoch: e}
	var all []layout.Owned
	x.infos, all = arrayIn(list, e, o.Section)
	switch {
	case all != nil && o.Rank < 0 && strings.HasSuffix(o.File, npy.Suffix):
		return x.array(all)
	case all != nil && strings.HasSuffix(o.File, npy.ManySuffix) && !all[0].Keyed():
		return nil, fmt.Errorf("%q is no set of items: give a file NAME.npy", o.Section)
	case all != nil && strings.HasSuffix(o.File, npy.ManySuffix):
		return x.items(all)
	}
	size := v.Dirs()[0].Size
	if i := slices.IndexFunc(list, func(i checkpoints.EpochInfo) bool { return i.Epoch == e && i.Size > 0 }); i >= 0 {
		size = list[i].Size // the manifest says it
	}
	ranks, err := x.ranks(size, all)
	if err != nil {
		return nil, err
	}
	for _, r := range ranks {
		more, err := x.rankOf(r)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// ranks returns the ranks whose regions are meant. array has the ranks' parts of the region, if it is a global array or
// a replicated value.
func (x *export) ranks(size int, array []layout.Owned) (ranks []int, err error) {
	switch all := strings.Contains(x.File, RankPattern); {
	case x.Rank >= 0:
		if x.Rank >= size {
			return nil, fmt.Errorf("--rank %d: the epoch has the ranks 0 to %d", x.Rank, size-1)
		}
		return []int{x.Rank}, nil
	case all:
		for r := range size {
			ranks = append(ranks, r)
		}
		return ranks, nil
	case array != nil && array[0].Kind == layout.Replicated:
		return storing(array), nil
	case size > 1 && array != nil && array[0].Keyed():
		return nil, fmt.Errorf("%q is a set of items of %d ranks: give a file NAME.npz for all of it, choose a rank's "+
			"share with --rank, or write a file for each with %s in the name after -o", x.Section, size, RankPattern)
	case size > 1 && array != nil:
		return nil, fmt.Errorf("%q is a global array of %d ranks: give a file NAME.npy for all of it, choose a rank's "+
			"share with --rank, or write a file for each with %s in the name after -o", x.Section, size, RankPattern)
	case size > 1 && x.Section != "":
		return nil, fmt.Errorf("the epoch has %d ranks: choose one with --rank, or write a file for each with %s in "+
			"the name after -o", size, RankPattern)
	}
	return []int{0}, nil
}

func (x *export) rankOf(rank int) (rows []Row, err error) {
	sh, err := x.view.Fetch(x.ctx, x.epoch, rank)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	items, err := coordinated.ListSaved(x.ctx, sh)
	if err != nil {
		return nil, err
	}
	nameArrays(items, sh.Layout())
	rowOf := func(i *coordinated.Saved) Row {
		return Row{Epoch: uint64(x.epoch), Rank: rank, Name: i.Name, Type: i.Kind, Bytes: i.Bytes, Section: i.Section,
			Offset: i.Off}
	}
	if x.Section == "" {
		for i := range items {
			rows = append(rows, rowOf(&items[i]))
		}
		return rows, nil
	}
	item, err := pickItem(x.Section, sh, items)
	if err != nil {
		return nil, fmt.Errorf("rank %d of epoch %d %w", rank, x.epoch, err)
	}
	row := rowOf(item)
	read := &itemReader{x.ctx, sh, item, 0, x.Copied}
	if x.File == "-" {
		row.File = "-"
		_, err = io.CopyBuffer(struct{ io.Writer }{x.Stdout}, read, make([]byte, pieceBytes))
	} else {
		row.File = strings.ReplaceAll(x.File, RankPattern, strconv.Itoa(rank))
		err = cli.WriteFile(row.File, x.Force, func(f *os.File) error {
			_, err := io.CopyBuffer(struct{ io.Writer }{f}, read, make([]byte, pieceBytes))
			return err
		})
	}
	x.warn(sh)
	return []Row{row}, err
}

// warn names the damage in a shard that other copies made good.
func (x *export) warn(sh *storage.Shard) {
	for _, d := range sh.Damage() {
		x.Warn(d)
	}
}

// pickItem finds a section of the shard, or an item in one, by its name.
func pickItem(name string, sh *storage.Shard, items []coordinated.Saved) (*coordinated.Saved, error) {
	var found []*coordinated.Saved
	var near []string
	for i := range items {
		if items[i].Name == name {
			found = append(found, &items[i])
		}
		near = append(near, items[i].Name)
	}
	for _, s := range sh.Sections() {
		if s.Name == name && len(found) == 0 {
			return &coordinated.Saved{Name: name, Bytes: s.Size, Section: name}, nil
		}
	}
	switch len(found) {
	case 0:
		slices.Sort(near)
		if len(near) > 12 {
			near = append(near[:12], "...")
		}
		return nil, fmt.Errorf("has no section %q; it has %s", name, strings.Join(near, ", "))
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("has %d things of the name %q; name one by its section, such as %s", len(found), name,
		found[0].Section)
}

// pieceBytes is how much is read at once, by several goroutines.
const pieceBytes = 8 << 20

// itemReader reads something that a shard holds, verified.
type itemReader struct {
	ctx    context.Context
	sh     *storage.Shard
	item   *coordinated.Saved
	at     int64
	copied *atomic.Int64
}

func (r *itemReader) Read(p []byte) (int, error) {
	n := min(int64(len(p)), r.item.Bytes-r.at)
	if n == 0 {
		return 0, io.EOF
	}
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if err := r.sh.ReadAt(r.ctx, r.item.Section, p[:n], r.item.Off+r.at); err != nil {
		return 0, err
	}
	r.at += n
	r.copied.Add(n)
	return int(n), nil
}
