package epochs

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// copyRow is the line of copy: the epoch that it copied.
type copyRow struct {
	Epoch   uint64 `json:"epoch"`             // number of the epoch that was copied
	To      string `json:"to"`                // directory or object store that received it
	Bytes   int64  `json:"bytes"`             // protected bytes of all ranks
	Already bool   `json:"already,omitempty"` // it was complete there before
}

func newCopy() *cobra.Command {
	var to, epoch string
	var jobs int
	cmd := newVerb("copy DIR... --to PLACE", "copy an epoch to another directory or object store",
		cobra.MinimumNArgs(1), func(cmd *cobra.Command, dirs []string) error {
			e, bytes, err := epochToCopy(cmd, dirs, epoch)
			if err != nil {
				return err
			}
			var seen ioCounts
			stop := cli.ShowBar(cmd, "copying", bytes, seen.written.Load)
			done, err := checkpoints.Copy(seen.over(cmd.Context()), dirs, to, e, jobs)
			stop()
			if err != nil {
				return badIfCorrupt(cmd, ofTarget(err, to))
			}
			out := cmd.OutOrStdout()
			switch {
			case cli.AsJSON(cmd):
				return cli.JSONLines(out, []copyRow{{uint64(done.Epoch), to, done.Bytes, done.Already}})
			case done.Already:
				_, err = fmt.Fprintf(out, "%s has epoch %d already\n", to, done.Epoch)
			default:
				_, err = fmt.Fprintf(out, "epoch %d (%s) is now committed in %s\n", done.Epoch,
					units.Bytes(done.Bytes), to)
			}
			return err
		})
	f := cmd.Flags()
	cli.JSON(f, "write one JSON object", copyRow{})
	f.StringVar(&to, "to", "", "`PLACE` to copy to: a directory, or s3://BUCKET/PREFIX")
	f.StringVarP(&epoch, "epoch", "e", "newest", "`EPOCH` to copy: its number, or \"newest\"")
	addJobs(cmd, &jobs)
	cobra.CheckErr(cmd.MarkFlagRequired("to"))
	return cmd
}

// epochToCopy finds the epoch that is meant, and about how many bytes it has.
func epochToCopy(cmd *cobra.Command, dirs []string, epoch string) (e storage.Epoch, bytes int64, err error) {
	v, err := openView(cmd.Context(), cmd, dirs)
	if err != nil {
		return 0, 0, err
	}
	list, err := v.Epochs(cmd.Context())
	if err != nil {
		return 0, 0, err
	}
	if epoch != "newest" {
		if n, err := strconv.ParseUint(epoch, 10, 64); err != nil || n == 0 {
			return 0, 0, fmt.Errorf("epoch %q is neither a number nor \"newest\"", epoch)
		}
	}
	if e, err = pickEpoch(epoch, list); err != nil {
		return 0, 0, err
	}
	for _, info := range list {
		if info.Epoch == e && info.Err == nil && info.Committed {
			bytes = 0
			for i := range info.Shards {
				bytes += info.Shards[i].Bytes
			}
		}
	}
	return e, bytes, nil
}

// ofTarget names the flag, not the level, in the error of a place to copy to that cannot be used.
func ofTarget(err error, to string) error {
	var place *storage.DirError
	if !errors.As(err, &place) || place.Dir != to && place.Dir != filepath.Clean(to) {
		return err
	}
	place.Level = ""
	return fmt.Errorf("--to: %w", err)
}

// badIfCorrupt ends a verb with cli.Bad if its epoch is damaged or incomplete.
func badIfCorrupt(cmd *cobra.Command, err error) error {
	if cmd.Context().Err() != nil || !storage.IsDamage(err) {
		return err
	}
	err = fmt.Errorf("%w; give the directories of all levels and nodes together, or run 'holdfast repair' on them", err)
	if cli.AsJSON(cmd) {
		if werr := cli.JSONLines(cmd.OutOrStdout(), []cli.Failure{{Error: err.Error()}}); werr != nil {
			return werr
		}
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", err)
	return cli.ErrBad
}
