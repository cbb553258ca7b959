// Package verb has the common parts of holdfast's verbs: the directories and the settings that they are given, and
// their help.
package verb

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/config"
	_ "github.com/holdfast-hpc/holdfast/storage/parity" // parity of the checkpoints of programs in other languages
	_ "github.com/holdfast-hpc/holdfast/storage/s3"     // checkpoints in object stores
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// Dirs returns the directories that a command is given, otherwise those that the configuration in force gives a job,
// that of all nodes first: a user in the job's working directory need not name them. That of a node is left out where
// no job has used it.
func Dirs(cmd *cobra.Command, dirs []string) ([]string, error) {
	if len(dirs) > 0 {
		return dirs, nil
	}
	o := coordinated.FromEnv()
	if o.Global != "" {
		dirs = append(dirs, o.Global)
	}
	_, err := os.Stat(filepath.Join(o.Local, "holdfast.job"))
	if o.Local != "" && (err == nil || len(dirs) == 0) {
		dirs = append(dirs, o.Local)
	}
	switch {
	case len(dirs) > 0:
		return dirs, nil
	case o.Off() != "":
		return nil, fmt.Errorf("%s: there are no checkpoints to look at, since programs run without them here: %s; "+
			"give DIR for those of another run", cmd.CommandPath(), o.Off())
	}
	return nil, fmt.Errorf("%s needs a directory: give DIR, or set HOLDFAST_GLOBAL or HOLDFAST_LOCAL; usage: %s",
		cmd.CommandPath(), cmd.UseLine())
}

// Dir is Dirs for a command that takes one.
func Dir(cmd *cobra.Command, dirs []string) (string, error) {
	dirs, err := Dirs(cmd, dirs)
	if err != nil {
		return "", err
	}
	return dirs[0], nil
}

// keyOf is the annotation of a flag that sets a key of the configuration.
const keyOf = "holdfast_key"

var allKeys = sync.OnceValue(func() []config.Value { return coordinated.ReadConfig("").Values() })

// Value returns the value of a key as it was set, empty for the default. It does not need the other keys to be right.
func Value(c *coordinated.Config, key string) string {
	for _, v := range c.Values() {
		if v.Key == key && v.Error == "" {
			return v.Value
		}
	}
	return ""
}

// KeyFlag gives a command a flag for a key of the configuration, with the help and the default of the key.
func KeyFlag(cmd *cobra.Command, name, key string) {
	for _, v := range allKeys() {
		if v.Key == key {
			cmd.Flags().String(name, "", fmt.Sprintf("`FILE`: %s (setting %s; default: %s)", v.Help, key, v.Default))
			_ = cmd.Flags().SetAnnotation(name, keyOf, []string{key}) // the flag exists
		}
	}
}

// Settings reads the configuration for a command, whose flags for keys win.
func Settings(cmd *cobra.Command) (*coordinated.Config, error) {
	c := coordinated.ReadConfig("")
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, key := range f.Annotations[keyOf] {
			_ = c.Set(key, f.Value.String(), "--"+f.Name) // the key exists; Err has the fault of the value
		}
	})
	return c, c.Err()
}

// A Size is the value of a flag, written as the configuration has sizes: 512MiB, 8GiB, or 8G for 8000000000.
type Size int64

// Set reads a size of more than 0.
func (b *Size) Set(text string) error {
	var n int64
	if err := config.Bytes(func(n *int64) *int64 { return n }).Set(&n, text); err != nil || n <= 0 {
		return fmt.Errorf("%q is not a size: want a number of bytes such as 8GiB or 8G", text)
	}
	*b = Size(n)
	return nil
}

// String returns the number of bytes.
func (b *Size) String() string { return strconv.FormatInt(int64(*b), 10) }

// Type returns the help's name of the value.
func (*Size) Type() string { return "bytes" }
