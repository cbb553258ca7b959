package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWriteFile: a file is there whole or not at all, and only force replaces one.
func TestWriteFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	text := func(text string, err error) func(f *os.File) error {
		return func(f *os.File) error {
			_, werr := f.WriteString(text)
			return errors.Join(werr, err)
		}
	}
	for _, c := range []struct {
		force     bool
		err       error
		fails, is string
	}{
		{false, errors.New("interrupted"), "interrupted", ""},
		{false, nil, "", "1"},
		{false, nil, "use --force", "1"},
		{true, errors.New("interrupted"), "interrupted", "1"},
		{true, nil, "", "4"},
	} {
		err := WriteFile(name, c.force, text(map[bool]string{true: "4", false: "1"}[c.force], c.err))
		b, _ := os.ReadFile(name)
		list, _ := os.ReadDir(filepath.Dir(name))
		if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) ||
			string(b) != c.is || len(list) > len(c.is) {
			t.Errorf("%+v: got %v, %q, %v", c, err, b, list)
		}
	}
	link := name + "-link"
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(link, true, text("1", nil)); err != nil {
		t.Error(err)
	}
	if to, err := os.Readlink(link); err != nil || to != "/dev/null" {
		t.Errorf("the link to a device has become %q, %v", to, err)
	}
}
