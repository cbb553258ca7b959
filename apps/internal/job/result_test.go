package job

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "result.csv")
	write := func(text string, err error) error {
		return WriteFile(name, func(w io.Writer) error {
			io.WriteString(w, text)
			return err
		})
	}
	if err := write("first", nil); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := write("second", broken); !errors.Is(err, broken) {
		t.Errorf("got %v, want the writer's error", err)
	}
	if got, _ := os.ReadFile(name); string(got) != "first" {
		t.Errorf("after a failed write: got %q, want the old file", got)
	}
	entries, _ := os.ReadDir(filepath.Dir(name))
	if len(entries) != 1 {
		t.Errorf("got %d files, want no temporary one left", len(entries))
	}
}

func TestWriteFileNamesTheFolder(t *testing.T) {
	err := WriteFile(filepath.Join(t.TempDir(), "missing", "r"), func(io.Writer) error { return nil })
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}
