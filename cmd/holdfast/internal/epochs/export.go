package epochs

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

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/npy"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// exportRow is one line of export: what a rank's shard holds, or a file that was written.
type exportRow struct {
	Epoch   uint64 `json:"epoch"`
	Rank    int    `json:"rank"`
	Name    string `json:"name"`
	Type    string `json:"type,omitempty"`
	Bytes   int64  `json:"bytes"`
	Items   int    `json:"items,omitempty"` // of a set with keys
	Section string `json:"section"`
	Offset  int64  `json:"offset"`         // in the section
	File    string `json:"file,omitempty"` // absent: nothing was written
}

// export is what the flags of export say.
type export struct {
	epoch, section, out, box string
	from                     []string
	rank                     int
	force, asJSON            bool
	copied                   atomic.Int64
}

// rankPattern stands for the number of the rank in the name of a file.
const rankPattern = "{rank}"

func newExport() *cobra.Command {
	x := &export{}
	cmd := &cobra.Command{
		Use:   "export EPOCH|-e EPOCH [SECTION]",
		Short: "write a protected region of an epoch to a file",
		Long:  help("export"),
		Args:  cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if args, err = x.splitEpoch(cmd, args); err != nil {
				return err
			}
			if len(args) > 0 {
				x.section = args[0]
			}
			if x.from, err = verb.Dirs(cmd, x.from); err != nil {
				return err
			}
			if err := x.check(cmd); err != nil {
				return err
			}
			rows, err := x.run(cmd)
			if err != nil {
				return badIfCorrupt(cmd, err, x.asJSON)
			}
			if x.out == "-" { // what is on standard output is the data
				return cli.Table(cmd.ErrOrStderr(), exportTable(rows))
			}
			return cli.Rows(cmd, x.asJSON, rows, exportTable)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&x.asJSON, "json", false, "write one JSON object per line")
	f.StringArrayVar(&x.from, "from", nil, "checkpoint directory; may be repeated (default: the configuration's)")
	f.StringVarP(&x.epoch, "epoch", "e", "", `number of the epoch, or "newest": the same as EPOCH as first argument`)
	f.IntVar(&x.rank, "rank", 0, "rank whose region it is")
	f.StringVar(&x.box, "box", "", `part of a global array: a range "start:end" of each dimension`)
	f.StringVarP(&x.out, "output", "o", "", `file to write; "-": standard output`)
	f.BoolVar(&x.force, "force", false, "replace the file if it exists")
	return cmd
}

// splitEpoch takes the epoch from the arguments, unless -e has it.
func (x *export) splitEpoch(cmd *cobra.Command, args []string) (rest []string, err error) {
	switch {
	case x.epoch != "" && len(args) == 2:
		return nil, fmt.Errorf("the epoch is named twice: -e %s and %s; usage: %s", x.epoch, args[0], cmd.UseLine())
	case x.epoch != "":
		return args, nil
	case len(args) == 0:
		return nil, fmt.Errorf("%s needs an epoch: give -e EPOCH, or -e newest; usage: %s", cmd.CommandPath(),
			cmd.UseLine())
	}
	x.epoch = args[0]
	return args[1:], nil
}

func (x *export) check(cmd *cobra.Command) error {
	switch {
	case x.section == "" && x.out != "":
		return errors.New("-o needs a SECTION; see holdfast export --help")
	case x.box != "" && !strings.HasSuffix(x.out, npy.Suffix):
		return errors.New("--box writes a global array to a file for NumPy: give its name with -o NAME.npy")
	case x.out == "-" && x.asJSON:
		return errors.New("-o - and --json do not go together; see holdfast export --help")
	case x.out == "-" && cli.IsTerminal(cmd.OutOrStdout()):
		return errors.New("standard output is a terminal: redirect it, or give a file with -o")
	}
	return nil
}

func (x *export) run(cmd *cobra.Command) (rows []exportRow, err error) {
	var seen ioCounts
	v, err := openView(seen.over(cmd.Context()), cmd, x.from)
	if err != nil {
		return nil, err
	}
	list, err := v.Epochs(cmd.Context())
	if err != nil {
		return nil, err
	}
	e, err := pickEpoch(x.epoch, list)
	if err == nil && x.section != "" && x.out == "" {
		err = errors.New("give the file with -o, or -o - for standard output; see holdfast export --help")
	}
	if err != nil {
		return nil, err
	}
	infos, all := arrayIn(list, e, x.section)
	if all != nil && !cmd.Flags().Changed("rank") && strings.HasSuffix(x.out, npy.Suffix) {
		defer cli.ShowBar(cmd, "exporting", 0, x.copied.Load, cli.InBytes)()
		return x.array(cmd, v, e, infos, all)
	}
	if all != nil && strings.HasSuffix(x.out, npy.ManySuffix) {
		if !all[0].Keyed() {
			return nil, fmt.Errorf("%q is no set of items: give a file NAME.npy", x.section)
		}
		defer cli.ShowBar(cmd, "exporting", 0, x.copied.Load, cli.InBytes)()
		return x.items(cmd, v, e, infos, all)
	}
	if x.box != "" {
		return nil, fmt.Errorf("--box: epoch %d has no global array %q, or --rank is given", e, x.section)
	}
	ranks, err := x.ranks(cmd, sizeOf(list, e, v.Dirs()[0].Size), all)
	if err != nil {
		return nil, err
	}
	defer cli.ShowBar(cmd, "exporting", 0, x.copied.Load, cli.InBytes)()
	for _, r := range ranks {
		more, err := x.rankOf(cmd, v, e, r)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// sizeOf is of how many ranks an epoch is; size where no manifest says it.
func sizeOf(list []checkpoints.EpochInfo, e storage.Epoch, size int) int {
	for i := range list {
		if list[i].Epoch == e && list[i].Size > 0 {
			return list[i].Size
		}
	}
	return size
}

// ranks says whose regions are meant. array is what ranks have of the region, if it is a global array or a replicated
// value.
func (x *export) ranks(cmd *cobra.Command, size int, array []layout.Owned) (ranks []int, err error) {
	switch all := strings.Contains(x.out, rankPattern); {
	case cmd.Flags().Changed("rank"):
		if x.rank >= size {
			return nil, fmt.Errorf("--rank %d: the epoch has the ranks 0 to %d", x.rank, size-1)
		}
		return []int{x.rank}, nil
	case all:
		for r := range size {
			ranks = append(ranks, r)
		}
		return ranks, nil
	case array != nil && array[0].Kind == layout.Replicated:
		return storing(array), nil
	case size > 1 && array != nil && array[0].Keyed():
		return nil, fmt.Errorf("%q is a set of items of %d ranks: give a file NAME.npz for all of it, choose a rank's "+
			"share with --rank, or write a file for each with %s in the name after -o", x.section, size, rankPattern)
	case size > 1 && array != nil:
		return nil, fmt.Errorf("%q is a global array of %d ranks: give a file NAME.npy for all of it, choose a rank's "+
			"share with --rank, or write a file for each with %s in the name after -o", x.section, size, rankPattern)
	case size > 1 && x.section != "":
		return nil, fmt.Errorf("the epoch has %d ranks: choose one with --rank, or write a file for each with %s in "+
			"the name after -o", size, rankPattern)
	}
	return []int{0}, nil
}

// rankOf lists or writes what is asked for of a rank.
func (x *export) rankOf(cmd *cobra.Command, v *checkpoints.View, e storage.Epoch, rank int) (rows []exportRow,
	err error) {
	ctx := cmd.Context()
	sh, err := v.Fetch(ctx, e, rank)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	items, err := coordinated.ListSaved(ctx, sh)
	if err != nil {
		return nil, err
	}
	nameArrays(items, sh.Layout())
	rowOf := func(i *coordinated.Saved) exportRow {
		return exportRow{Epoch: uint64(e), Rank: rank, Name: i.Name, Type: i.Kind, Bytes: i.Bytes, Section: i.Section,
			Offset: i.Off}
	}
	if x.section == "" {
		for i := range items {
			rows = append(rows, rowOf(&items[i]))
		}
		return rows, nil
	}
	item, err := pickItem(x.section, sh, items)
	if err != nil {
		return nil, fmt.Errorf("rank %d of epoch %d %w", rank, e, err)
	}
	row := rowOf(item)
	read := &itemReader{ctx, sh, item, 0, &x.copied}
	if x.out == "-" {
		row.File = "-"
		_, err = io.CopyBuffer(struct{ io.Writer }{cmd.OutOrStdout()}, read, make([]byte, exportPiece))
	} else {
		row.File = strings.ReplaceAll(x.out, rankPattern, strconv.Itoa(rank))
		err = writeWhole(row.File, x.force, read)
	}
	for _, d := range sh.Damage() {
		fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: warning: read around damage: %v\n", d)
	}
	return []exportRow{row}, err
}

// pickItem finds what has a name: a section of the shard, or something in one.
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

// exportPiece is how much is read at once, by several goroutines.
const exportPiece = 8 << 20

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

// writeWhole makes a file that gets its name when it is complete and on the disk. One that is there is replaced only
// by force.
func writeWhole(name string, force bool, from io.Reader) error {
	return cli.WriteFile(name, force, func(f *os.File) error {
		_, err := io.CopyBuffer(struct{ io.Writer }{f}, from, make([]byte, exportPiece))
		return err
	})
}

func exportTable(rows []exportRow) [][]string {
	written := slices.ContainsFunc(rows, func(r exportRow) bool { return r.File != "" })
	head := []string{"EPOCH", "RANK", "NAME", "TYPE", "BYTES", "SIZE", "SECTION"}
	if written {
		head[6] = "FILE"
	}
	out := [][]string{head}
	for _, r := range rows {
		last := r.Section
		if written {
			last = r.File
		}
		out = append(out, []string{fmt.Sprint(r.Epoch), fmt.Sprint(r.Rank), r.Name, cli.Dash(r.Type),
			fmt.Sprint(r.Bytes), units.Bytes(r.Bytes), last})
	}
	return out
}
