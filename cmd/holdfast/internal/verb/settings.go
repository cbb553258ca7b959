package verb

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// keyOf is the annotation of a flag that sets a key of the configuration.
const keyOf = "holdfast_key"

// allKeys describes the keys of the configuration.
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
