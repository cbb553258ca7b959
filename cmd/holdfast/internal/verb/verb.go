// Package verb has the common parts of holdfast's verbs: the directories and the settings that they are given, and
// their help.
package verb

import (
	"embed"
	"fmt"
	"strconv"
	"strings"

	_ "github.com/holdfast-hpc/holdfast/storage/parity" // parity of the checkpoints of programs in other languages
	_ "github.com/holdfast-hpc/holdfast/storage/s3"     // checkpoints in object stores
	"github.com/spf13/cobra"
)

// Maker makes the verb that use begins with.
type Maker func(use, short string, args cobra.PositionalArgs, run func(*cobra.Command, []string) error) *cobra.Command

// New has the help of verbs in the files help/VERB.txt that their package embeds.
func New(texts embed.FS) Maker {
	return func(use, short string, args cobra.PositionalArgs, run func(*cobra.Command, []string) error) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short, Args: args, RunE: run}
		text, err := texts.ReadFile("help/" + c.Name() + ".txt")
		if err != nil {
			panic(err) // every verb has one
		}
		c.Long = strings.TrimSpace(string(text))
		return c
	}
}

// Hidden makes a command that commands of holdfast start.
func Hidden(use, short string, args cobra.PositionalArgs, run func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Hidden: true, Args: args, RunE: run}
}

// Processes returns those that a command is given by their numbers.
func Processes(args []string) ([]int, error) {
	pids := make([]int, len(args))
	for i, a := range args {
		var err error
		if pids[i], err = strconv.Atoi(a); err != nil || pids[i] <= 0 {
			return nil, fmt.Errorf("%q is no process ID", a)
		}
	}
	return pids, nil
}
