package job

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
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

func TestWriteFileNamesTheDirectory(t *testing.T) {
	err := WriteFile(filepath.Join(t.TempDir(), "missing", "r"), func(io.Writer) error { return nil })
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}

// TestWriteResult: the hash beside a result is that of its bytes.
func TestWriteResult(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out.csv")
	if err := WriteResult(name, func(w io.Writer) error {
		_, err := io.WriteString(w, "abc")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name + ".sha256")
	const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  out.csv\n" // FIPS 180-2, B.1
	if err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestCheckFile: what cannot be written is reported beforehand, and the check changes
// nothing.
func TestCheckFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"new": "", "old": "", ".": "no regular file", "none/r": "directory " + dir + "/none: no such file",
		"old/r": "not a directory",
	} {
		err := CheckFile(filepath.Join(dir, name))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("got %d files, want the old one alone", len(entries))
	}
}
