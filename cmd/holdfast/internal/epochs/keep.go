package epochs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// keepRow is one line of keep: an epoch that is kept, or was until now.
type keepRow struct {
	Epoch   uint64    `json:"epoch"`             // number of the epoch
	Name    string    `json:"name,omitempty"`    // name that was given with --name
	ByRule  bool      `json:"by_rule"`           // it is kept because of the setting keep_every
	Time    time.Time `json:"time"`              // when it was first kept
	Dir     string    `json:"dir"`               // directory or object store that it is in
	Removed bool      `json:"removed,omitempty"` // it is no longer kept
}

func newKeep() *cobra.Command {
	var remove bool
	var name, named string
	cmd := newVerb("keep [DIR] [EPOCH|-e EPOCH]", "protect an epoch from removal", cobra.MaximumNArgs(2),
		func(cmd *cobra.Command, args []string) error {
			dir, epoch, err := keepArgs(cmd, args)
			switch {
			case err != nil:
				return err
			case named != "" && epoch != "":
				return namedTwice(cmd, named, epoch)
			case named != "":
				epoch = named
			}
			switch {
			case epoch == "" && (remove || name != ""):
				return errors.New("give the EPOCH, too; see holdfast keep --help")
			case remove && name != "":
				return errors.New("--name and --remove do not go together; see holdfast keep --help")
			case namesAnother(name):
				return fmt.Errorf("--name %s would be taken for another epoch; choose one that is neither a "+
					"number nor \"newest\"", name)
			case epoch == "":
				return listKept(cmd, dir)
			}
			row, err := keepOne(cmd, dir, epoch, name, remove)
			if err != nil {
				return err
			}
			return cli.Rows(cmd, []keepRow{row}, keepTable)
		})
	f := cmd.Flags()
	cli.JSON(f, "write one JSON object per line", keepRow{})
	f.BoolVar(&remove, "remove", false, "stop keeping the epoch")
	f.StringVarP(&named, "epoch", "e", "", "`EPOCH` to keep: the same as the argument")
	f.StringVar(&name, "name", "", "`NAME` of the epoch in lists, such as before-restart-with-new-mesh")
	return cmd
}

// keepArgs says which of the arguments is the directory, otherwise that of the job, and which the epoch, empty if none.
func keepArgs(cmd *cobra.Command, args []string) (dir, epoch string, err error) {
	switch {
	case len(args) == 2 && !isPlace(args[0]) && isPlace(args[1]): // as export has them
		return args[1], args[0], nil
	case len(args) == 2:
		return args[0], args[1], nil
	case len(args) == 1 && isPlace(args[0]):
		return args[0], "", nil
	case len(args) == 1:
		epoch = args[0]
	}
	dir, err = verb.Dir(cmd, nil)
	return dir, epoch, err
}

// isPlace reports whether an argument is a directory or an object store, and not an epoch.
func isPlace(arg string) bool {
	info, err := os.Stat(arg)
	return strings.Contains(arg, "/") || err == nil && info.IsDir()
}

// namesAnother reports whether a name is also how any epoch may be called.
func namesAnother(name string) bool {
	_, err := strconv.ParseUint(name, 10, 64)
	return err == nil || name == "newest"
}

func keepOne(cmd *cobra.Command, dir, epoch, name string, remove bool) (row keepRow, err error) {
	ctx := cmd.Context()
	kept, err := checkpoints.Pins(ctx, dir)
	if err != nil && kept == nil {
		return row, err
	}
	var k checkpoints.Pin
	for _, one := range kept {
		if one.Name != "" && one.Name == name && fmt.Sprint(one.Epoch) != epoch {
			return row, fmt.Errorf("epoch %d has the name %q already; choose another one", one.Epoch, name)
		}
		if epoch == fmt.Sprint(one.Epoch) || epoch == one.Name && !namesAnother(epoch) {
			k = one
		}
	}
	if remove && k.Epoch == 0 {
		return row, fmt.Errorf("%s in %s is not kept: %w", epoch, dir, fs.ErrNotExist)
	}
	if remove {
		return keepRowOf(&k, dir, true), checkpoints.UnpinEpoch(ctx, dir, k.Epoch)
	}
	e := k.Epoch
	if e == 0 && !namesAnother(epoch) {
		return row, fmt.Errorf("no epoch in %s is kept under the name %q; give a number, \"newest\", or a name that "+
			"'holdfast keep %s' lists", dir, epoch, dir)
	}
	if e == 0 {
		_, list, err := inspect(cmd, []string{dir})
		if err != nil {
			return row, err
		}
		if e, err = pickEpoch(epoch, list); err != nil {
			return row, err
		}
	}
	k = checkpoints.Pin{Epoch: e, Name: cmp.Or(name, k.Name), Time: time.Now().UnixNano()}
	return keepRowOf(&k, dir, false), checkpoints.PinEpoch(ctx, dir, e, k.Name)
}

func listKept(cmd *cobra.Command, dir string) error {
	kept, err := checkpoints.Pins(cmd.Context(), dir)
	if err != nil && kept == nil {
		return err
	}
	var rows []keepRow
	for i := range kept {
		rows = append(rows, keepRowOf(&kept[i], dir, false))
	}
	if werr := cli.Rows(cmd, rows, keepTable); werr != nil || err == nil {
		return werr
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", err)
	return cli.ErrBad
}

func keepRowOf(k *checkpoints.Pin, dir string, removed bool) keepRow {
	return keepRow{Epoch: uint64(k.Epoch), Name: k.Name, ByRule: k.Auto, Time: time.Unix(0, k.Time), Dir: dir,
		Removed: removed}
}

func keepTable(rows []keepRow) [][]string {
	out := [][]string{{"EPOCH", "STATE", "NAME", "SINCE", "DIRECTORY"}}
	for _, r := range rows {
		state := "kept"
		switch {
		case r.Removed:
			state = "no longer kept"
		case r.ByRule:
			state = "kept by keep_every"
		}
		out = append(out, []string{fmt.Sprint(r.Epoch), state, cli.Dash(r.Name), r.Time.Format(time.DateTime), r.Dir})
	}
	return out
}
