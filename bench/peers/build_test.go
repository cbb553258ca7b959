package peers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFind: the directory that the user names is taken and no other, else the one that pkg-config knows; Holdfast's
// drop-in is recognised, and never measured as VeloC.
func TestFind(t *testing.T) {
	veloc, dropIn := libraries[0], t.TempDir()
	if err := os.CopyFS(filepath.Join(dropIn, "include"), os.DirFS("../../lib/veloc/include")); err != nil {
		t.Fatal(err)
	}
	standIn := filepath.Join(t.TempDir(), "veloc-stand-in")
	if err := os.CopyFS(filepath.Join(standIn, "include"), os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	modules := t.TempDir()
	module := func(prefix string) {
		text := "prefix=" + prefix + "\nName: veloc\nDescription: x\nVersion: 1\n"
		if err := os.WriteFile(filepath.Join(modules, "veloc.pc"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PKG_CONFIG_PATH", modules)
	for _, c := range []struct{ env, module, want, why string }{
		{env: standIn, module: dropIn, want: standIn},
		{env: dropIn, module: standIn, why: "is Holdfast's own drop-in; set VELOC_HOME to another"},
		{env: modules, module: standIn, why: "there is no include/veloc.h"},
		{module: standIn, want: standIn},
		{module: dropIn, why: "is Holdfast's own drop-in); to get it: spack install veloc"},
	} {
		t.Setenv("VELOC_HOME", c.env)
		module(c.module)
		home, err := veloc.find()
		if home != c.want || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%+v: got %q, %v", c, home, err)
		}
	}
}
