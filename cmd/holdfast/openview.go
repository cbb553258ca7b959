package main

import (
	"context"
	"fmt"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/spf13/cobra"
)

// openView opens checkpoint directories and warns of those whose job is known
// from their manifests alone.
func openView(cmd *cobra.Command, ctx context.Context, dirs []string) (*storage.View, error) {
	v, err := storage.OpenView(ctx, dirs...)
	if err != nil {
		return nil, err
	}
	warnOfMarkers(cmd, v)
	return v, nil
}

func warnOfMarkers(cmd *cobra.Command, v *storage.View) {
	for _, d := range v.Dirs() {
		if d.Fault != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "holdfast: warning:", d.Fault)
		}
	}
}
