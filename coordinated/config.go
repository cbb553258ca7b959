package coordinated

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/spf13/viper"
)

// ConfigFile is the configuration file that is looked for in the working
// directory, and ConfigEnv the variable that names another one.
const (
	ConfigFile = "holdfast.yaml"
	ConfigEnv  = "HOLDFAST_CONFIG"
)

// A Config is the configuration of a job: for each key what is in force and
// where that comes from. A program's flag wins over a variable, a variable over
// the file, the file over the default.
type Config struct {
	File string // that was read, empty if there is none

	values []Value // in the order of settings
	errs   []error
}

// A Value is what is in force for a key.
type Value struct {
	Key     string `json:"key"`
	Env     string `json:"variable"`
	Value   string `json:"value"`  // as written; empty is the default
	Source  string `json:"source"` // "default", a file, a variable or a flag
	Default string `json:"default"`
	Allowed string `json:"allowed"`
	Help    string `json:"help"`
	Error   string `json:"error,omitempty"`
}

// FromEnv returns the options that holdfast.yaml in the working directory (or
// the file that HOLDFAST_CONFIG names) and HOLDFAST_* variables give; variables
// win. What cannot be read is reported by Open, so that every rank learns of
// it. `holdfast config` lists the keys, their variables, and what is in force.
func FromEnv() Options { return ReadConfig("").Options() }

// ReadConfig reads a configuration file and the environment. An empty name is
// that of HOLDFAST_CONFIG, else holdfast.yaml, which may be missing. Errors are
// kept for Err and Options.
func ReadConfig(file string) *Config {
	c := &Config{}
	if file == "" {
		file = os.Getenv(ConfigEnv)
	}
	named := file != ""
	if !named {
		file = ConfigFile
	}
	v := viper.New()
	v.SetConfigFile(file)
	switch err := v.ReadInConfig(); {
	case err == nil:
		c.File = file
	case named || !errors.Is(err, fs.ErrNotExist):
		c.errs = append(c.errs, fmt.Errorf("coordinated: configuration %s: %w", file, err))
	}
	for _, s := range settings {
		val := Value{Key: s.key, Env: s.env(), Source: "default", Default: s.normal, Allowed: s.allowed, Help: s.help}
		c.values = append(c.values, val)
	}
	c.readFile(v)
	for _, s := range settings {
		if text := os.Getenv(s.env()); text != "" {
			c.set(s.key, text, s.env())
		}
	}
	return c
}

// readFile takes over what the file has, and names the keys that nobody knows.
func (c *Config) readFile(v *viper.Viper) {
	keys := v.AllKeys()
	slices.Sort(keys)
	for _, key := range keys {
		text := v.GetString(key)
		if list, ok := v.Get(key).([]any); ok {
			var items []string
			for _, item := range list {
				items = append(items, fmt.Sprint(item))
			}
			if text = strings.Join(items, ","); text == "" {
				text = "none"
			}
		}
		if !c.set(key, text, c.File) {
			c.errs = append(c.errs,
				&OptionError{Name: key, Why: fmt.Sprintf("%s: no such key%s", c.File, nearest(key))})
		}
	}
}

// Set sets a key to a text as a file has it; source is what people call its
// origin, such as the name of a flag. An unknown key is an error now, a value
// that is not allowed is one of Err.
func (c *Config) Set(key, text, source string) error {
	if !c.set(key, text, source) {
		return &OptionError{Name: key, Why: fmt.Sprintf("no such key%s", nearest(key))}
	}
	return nil
}

func (c *Config) set(key, text, source string) bool {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
	if i < 0 {
		return false
	}
	v := &c.values[i]
	v.Value, v.Source, v.Error = text, source, ""
	if err := settings[i].set(&Options{}, text); err != nil {
		v.Error = (&OptionError{Name: key, Why: fmt.Sprintf("%q, from %s: %v; want %s", text, source, err,
			settings[i].allowed)}).Error()
	}
	return true
}

// Values returns what is in force, in a fixed order.
func (c *Config) Values() []Value { return slices.Clone(c.values) }

// Err returns what is wrong: a file that cannot be read, unknown keys, values
// that are not allowed. Each error names the key and what it may be.
func (c *Config) Err() error {
	errs := slices.Clone(c.errs)
	for _, v := range c.values {
		if v.Error != "" {
			errs = append(errs, errors.New(v.Error))
		}
	}
	return errors.Join(errs...)
}

// Check returns what Open would find wrong before it touches any directory: Err,
// and values that do not go together.
func (c *Config) Check() error {
	o := c.Options()
	return o.validate()
}

// Options returns the options. What Err says Open will say.
func (c *Config) Options() Options {
	var o Options
	if err := c.Err(); err != nil {
		return Options{bad: err}
	}
	for i, s := range settings {
		if text := c.values[i].Value; text != "" {
			_ = s.set(&o, text) // it was tried by Config.set
		}
	}
	o.stray = c.Stray(os.Environ())
	o.askSlurm, o.Supervisor = true, os.Getenv(SupervisorVar)
	if end, err := strconv.ParseInt(os.Getenv("SLURM_JOB_END_TIME"), 10, 64); err == nil {
		o.Deadline = time.Unix(end, 0)
	}
	o.slurm, _, _ = slurm.FromEnv(os.Getenv) // what cannot be read there is left out
	if o.Job == "" {
		o.Job = os.Getenv("SLURM_JOB_NAME")
	}
	if o.Job == "" {
		o.Job = filepath.Base(os.Args[0])
	}
	return o
}

// Stray names the variables of an environment that look like Holdfast's and mean
// nothing to it, each with the one that was probably meant.
func (c *Config) Stray(environ []string) []string {
	others := []string{ConfigEnv, SupervisorVar, "HOLDFAST_MPI"}
	var stray []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		key, ours := strings.CutPrefix(name, "HOLDFAST_")
		if !ours || slices.Contains(others, name) || strings.HasPrefix(key, "TEST") || strings.HasPrefix(key, "APPS") ||
			slices.ContainsFunc(settings, func(s setting) bool { return s.env() == name }) {
			continue
		}
		hint := ""
		if s := closest(strings.ToLower(key)); s != nil {
			hint = ", do you mean " + s.env() + "?"
		}
		stray = append(stray, fmt.Sprintf("%s is set, but is no variable of Holdfast%s", name, hint))
	}
	slices.Sort(stray)
	return stray
}

// nearest is a hint at the key that was meant, or at where all are explained.
func nearest(key string) string {
	if s := closest(key); s != nil {
		return fmt.Sprintf("; do you mean %s?", s.key)
	}
	return "; there are " + strings.Join(settingKeys(), ", ")
}

// closest is the setting that a wrong key probably means, nil if it is like none.
func closest(key string) *setting {
	plain := func(s string) string { return strings.NewReplacer("_", "", "-", "", ".", "").Replace(s) }
	best, least := -1, 0
	for i := range settings {
		a, b := plain(key), plain(settings[i].key)
		_, last, _ := strings.Cut(settings[i].key, ".")
		d := distance(a, b)
		if last != "" {
			d = min(d, 1+distance(a, plain(last)))
		}
		if len(b) > 3 && strings.Contains(a, b) || len(a) > 3 && strings.Contains(b, a) {
			d = min(d, 2) // checkpoint_interval, heartbeat
		}
		if d <= max(1, min(len(a), len(b))/3) && (best < 0 || d < least) {
			best, least = i, d
		}
	}
	if best < 0 {
		return nil
	}
	return &settings[best]
}

// distance is how many letters of a must be changed, dropped, put in or swapped
// with the next to get b.
func distance(a, b string) int {
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			d := last[j]
			if a[i] != b[j] {
				d++
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			row[j+1] = min(d, last[j+1]+1, row[j]+1)
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}

func settingKeys() []string {
	var keys []string
	for _, s := range settings {
		keys = append(keys, s.key)
	}
	return keys
}
