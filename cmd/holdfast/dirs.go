package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// osFS is the operating system's file system as the tool uses it: with what the
// user trusts.
func osFS() vfs.OS {
	allow, _ := strconv.ParseBool(os.Getenv("HOLDFAST_ALLOW_FOREIGN"))
	return vfs.OS{AllowForeign: allow}
}

// openView opens checkpoint directories and warns of those whose job is known
// from their manifests alone.
func openView(cmd *cobra.Command, ctx context.Context, dirs []string) (*checkpoints.View, error) {
	v, err := checkpoints.Open(ctx, dirs...)
	return v, warnOfMarkers(cmd, v, err)
}

// inspect is openView for directories of any state, and lists their epochs.
func inspect(cmd *cobra.Command, dirs []string) ([]checkpoints.EpochInfo, error) {
	v, err := checkpoints.Inspect(vfs.With(cmd.Context(), osFS()), dirs...)
	if err := warnOfMarkers(cmd, v, err); err != nil {
		return nil, err
	}
	return v.Epochs(cmd.Context())
}

func warnOfMarkers(cmd *cobra.Command, v *checkpoints.View, err error) error {
	if err != nil {
		return err
	}
	for _, d := range v.Dirs() {
		if d.Fault != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "holdfast: warning:", d.Fault)
		}
	}
	return nil
}
