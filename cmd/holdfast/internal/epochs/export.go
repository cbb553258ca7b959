package epochs

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/export"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/spf13/cobra"
)

type exportFlags struct {
	export.Options
	epoch string
	from  []string
}

func newExport() *cobra.Command {
	x := &exportFlags{}
	cmd := newVerb("export EPOCH|-e EPOCH [SECTION]", "write a variable, array or buffer of an epoch to a file",
		cobra.MaximumNArgs(2), func(cmd *cobra.Command, args []string) (err error) {
			if args, err = x.splitEpoch(cmd, args); err != nil {
				return err
			}
			if len(args) > 0 {
				x.Section = args[0]
			}
			if x.from, err = verb.Dirs(cmd, x.from); err != nil {
				return err
			}
			switch {
			case x.Section == "" && x.File != "":
				return errors.New("-o needs a SECTION; see holdfast export --help")
			case x.File == "-" && cli.AsJSON(cmd):
				return errors.New("-o - and --json do not go together; see holdfast export --help")
			case x.File == "-" && cli.IsTerminal(cmd.OutOrStdout()):
				return errors.New("standard output is a terminal: redirect it, or give a file with -o")
			}
			rows, err := x.run(cmd)
			if err != nil {
				return badIfCorrupt(cmd, err)
			}
			if x.File == "-" { // standard output has the data
				return cli.Table(cmd.ErrOrStderr(), exportTable(rows))
			}
			return cli.Rows(cmd, rows, exportTable)
		})
	f := cmd.Flags()
	cli.JSON(f, "write one JSON object per line", export.Row{})
	f.StringArrayVar(&x.from, "from", nil, "checkpoint directory `DIR`; may be repeated (default: the job's)")
	f.StringVarP(&x.epoch, "epoch", "e", "", "`EPOCH` to export, a number or \"newest\": same as the first argument")
	f.IntVar(&x.Rank, "rank", 0, "export only what this rank has protected (default: all ranks)")
	f.StringVarP(&x.File, "output", "o", "", "`FILE` to write; \"-\": standard output")
	f.BoolVar(&x.Force, "force", false, "replace the file if it exists")
	return cmd
}

func namedTwice(cmd *cobra.Command, option, arg string) error {
	return fmt.Errorf("the epoch is named twice: -e %s and %s; usage: %s", option, arg, cmd.UseLine())
}

// splitEpoch takes the epoch from the arguments, unless -e has it.
func (x *exportFlags) splitEpoch(cmd *cobra.Command, args []string) (rest []string, err error) {
	switch {
	case x.epoch != "" && len(args) == 2:
		return nil, namedTwice(cmd, x.epoch, args[0])
	case x.epoch != "":
		return args, nil
	case len(args) == 0:
		return nil, fmt.Errorf("%s needs an epoch: give -e EPOCH, or -e newest; usage: %s", cmd.CommandPath(),
			cmd.UseLine())
	}
	x.epoch = args[0]
	return args[1:], nil
}

func (x *exportFlags) run(cmd *cobra.Command) (rows []export.Row, err error) {
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
	if err == nil && x.Section != "" && x.File == "" {
		err = errors.New("give the file with -o, or -o - for standard output; see holdfast export --help")
	}
	if err != nil {
		return nil, err
	}
	if !cmd.Flags().Changed("rank") {
		x.Rank = -1
	}
	x.Copied, x.Stdout = new(atomic.Int64), cmd.OutOrStdout()
	x.Warn = func(damage error) {
		fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: warning: read around damage: %v\n", damage)
	}
	defer cli.ShowBar(cmd, "exporting", 0, x.Copied.Load)()
	return export.Run(cmd.Context(), v, list, e, x.Options)
}

func exportTable(rows []export.Row) [][]string {
	written := slices.ContainsFunc(rows, func(r export.Row) bool { return r.File != "" })
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
