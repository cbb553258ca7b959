package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

// File is the configuration file that is looked for in the working directory.
const File = "holdfast.yaml"

// A Row is a key of the configuration of a T. A further key is a further row, and
// nothing else.
type Row[T any] struct {
	Group   string // that it belongs to, for people
	Key     string
	Default string // the value when nothing is set, for people
	Help    string
	Kind[T]
}

// Key returns the row of a key.
func Key[T any](key, normal, help string, k Kind[T]) Row[T] {
	return Row[T]{Key: key, Default: normal, Help: help, Kind: k}
}

// In puts rows into a group.
func In[T any](group string, rows ...Row[T]) []Row[T] {
	for i := range rows {
		rows[i].Group = group
	}
	return rows
}

// Var returns the variable of a key.
func (r *Row[T]) Var() string { return variable(r.Key) }

func variable(key string) string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// A Config holds the value in force for each key, and its source.
type Config[T any] struct {
	File string // that was read, empty if there is none

	rows   []Row[T]
	values []Value // of rows, in their order
	errs   []error
	unlike []error  // keys that are like no other
	server []string // keys of the file that were settings of holdfast gpud: no job needs them
}

// A Value is the setting in force for a key.
type Value struct {
	Group   string `json:"group"`           // group of settings that it belongs to
	Key     string `json:"key"`             // key in holdfast.yaml
	Env     string `json:"variable"`        // environment variable
	Value   string `json:"value"`           // value as it was written; empty: the default
	Source  string `json:"source"`          // origin: "default", a file, a variable or a flag
	Default string `json:"default"`         // default, for people
	Allowed string `json:"allowed"`         // allowed values, for people
	Help    string `json:"help"`            // one sentence about the setting
	Error   string `json:"error,omitempty"` // the mistake in the value
}

// Read reads a file and the environment. An empty name is that of FileVar, else File, which may be missing. Err has the
// mistakes.
func Read[T any](rows []Row[T], file string) *Config[T] {
	c := &Config[T]{rows: rows}
	file = cmp.Or(file, os.Getenv(FileVar))
	named := file != ""
	if !named {
		file = File
	}
	keys, err := readFile(file)
	switch {
	case err == nil:
		c.File = file
	case named || !errors.Is(err, fs.ErrNotExist):
		c.errs = append(c.errs, fmt.Errorf("configuration %s: %w", file, err))
	}
	for i := range rows {
		r := &rows[i]
		c.values = append(c.values, Value{Group: r.Group, Key: r.Key, Env: r.Var(), Source: "default",
			Default: r.Default, Allowed: r.Allowed, Help: r.Help})
	}
	c.takeFile(keys)
	for _, val := range c.values {
		if text := os.Getenv(val.Env); text != "" {
			c.set(val.Key, text, val.Env)
		}
	}
	return c
}

// takeFile applies the keys of the file, and names those that are unknown.
func (c *Config[T]) takeFile(texts map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		text := texts[key]
		if c.set(key, text, c.File) {
			continue
		}
		gone := Removed(key)
		err := fmt.Errorf("configuration: %s: %s: %s", key, c.File, c.unknown(key))
		switch {
		case gone != "" && strings.HasPrefix(key, "gpud."):
			c.server = append(c.server, fmt.Sprintf("%s has %s, but %s", c.File, key, gone))
		case gone != "" || c.closest(key) != nil:
			c.errs = append(c.errs, err)
		default:
			c.unlike = append(c.unlike, err)
		}
	}
}

// Set sets a key to a text as a file has it; source names its origin for people, such as a flag. An unknown key is an
// error now, a value that is not allowed is one of Err.
func (c *Config[T]) Set(key, text, source string) error {
	if !c.set(key, text, source) {
		return fmt.Errorf("configuration: %s: %s", key, c.unknown(key))
	}
	return nil
}

func (c *Config[T]) set(key, text, source string) bool {
	i := slices.IndexFunc(c.rows, func(r Row[T]) bool { return r.Key == key })
	if i < 0 {
		return false
	}
	v := &c.values[i]
	v.Value, v.Source, v.Error = text, source, ""
	if err := c.rows[i].Set(new(T), text); err != nil {
		v.Error = fmt.Sprintf("configuration: %s: %q, from %s: %v; want %s", key, text, source, err, v.Allowed)
	}
	return true
}

// Values returns the values in force, in the order of the rows.
func (c *Config[T]) Values() []Value { return slices.Clone(c.values) }

// Err returns the mistakes: a file that cannot be read, unknown keys, values that are not allowed, and last the unknown
// keys that are like no other. Each error names the key and the values that are allowed.
func (c *Config[T]) Err() error {
	errs := slices.Clone(c.errs)
	for _, v := range c.values {
		if v.Error != "" {
			errs = append(errs, errors.New(v.Error))
		}
	}
	return errors.Join(append(errs, c.unlike...)...)
}

// Apply sets the allowed values in force in o, in the order of the rows.
func (c *Config[T]) Apply(o *T) {
	for i, v := range c.values {
		if v.Value != "" && v.Error == "" {
			_ = c.rows[i].Set(o, v.Value) // it was tried when it was set
		}
	}
}
