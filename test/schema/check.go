package schema

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var compiled sync.Map // of *jsonschema.Schema, by verb

// Check reports the first line of a verb's output that does not match its schema.
func Check(verb, output string) error {
	s, ok := compiled.Load(verb)
	if !ok {
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		made, err := c.Compile(filepath.Join(Dir(), verb+".json"))
		if err != nil {
			return err
		}
		s, _ = compiled.LoadOrStore(verb, made)
	}
	if output != "" && !strings.HasSuffix(output, "\n") {
		return errors.New("the last line has no end")
	}
	for line := range strings.Lines(output) {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err == nil {
			err = s.(*jsonschema.Schema).Validate(v)
		}
		if err != nil {
			return fmt.Errorf("holdfast %s --json wrote %s: %w", verb, strings.TrimSpace(line), err)
		}
	}
	return nil
}

// Output checks what a command wrote to standard output, if its arguments ask for JSON.
func Output(t testing.TB, args []string, stdout string) {
	t.Helper()
	if len(args) == 0 || !slices.Contains(args, "--json") || slices.Contains(args, "--help") || args[0] == "bench" {
		return
	}
	if i := slices.Index(args, "--"); i >= 0 && slices.Index(args, "--json") > i {
		return
	}
	if err := Check(args[0], stdout); err != nil {
		t.Error(err)
	}
}
