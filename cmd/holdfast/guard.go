package main

import (
	"github.com/holdfast-hpc/holdfast/internal/supervise"
	"github.com/spf13/cobra"
)

// newGuard is the process that holdfast run starts on another node than its own.
func newGuard() *cobra.Command {
	return &cobra.Command{
		Use: "guard", Short: "watch over holdfast run from another node of its job", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return supervise.RequeueOrphan(cmd.Context(), cmd.ErrOrStderr())
		},
	}
}

// newStartRank stands before the program on srun's command line.
func newStartRank() *cobra.Command {
	return &cobra.Command{
		Use: "start-rank PROGRAM [ARGUMENTS]", Short: "start a rank under holdfast run", Hidden: true,
		DisableFlagParsing: true,
		Args:               cobra.MinimumNArgs(1),
		RunE:               func(cmd *cobra.Command, args []string) error { return supervise.StartRank(cmd.Context(), args) },
	}
}
