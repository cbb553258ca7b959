package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

const (
	plain = "stripe_count:  1 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1"
	parts = "  lcm_layout_gen:    0\n  lcm_entry_count:   2\n    lcme_extent.e_start: 0\n" +
		"    lcme_extent.e_end: 67108864\n" +
		"      stripe_count:  1       stripe_size:   1048576\n    lcme_extent.e_start: 67108864\n" +
		"    lcme_extent.e_end: EOF\n      stripe_count:  -1       stripe_size:   4194304\n"
	wide = "stripe_count:  8 stripe_size:   1048576"
	tiny = "stripe_count:  2 stripe_size:   65536 stripe_offset: -1"
)

// fakeLFS puts a script in the place of Lustre's lfs, which prints a layout and the storage targets. It is no Lustre.
func fakeLFS(t *testing.T, layout string, targets int) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "fake-lfs")
	script := "#!/bin/sh\ncase $1 in\ngetstripe) cat <<'E'\n" + layout + "\nE\n;;\nosts) echo OBDS:\n"
	for i := range targets {
		script += "echo '" + string(rune('0'+i)) + ": fake-OST000" + string(rune('0'+i)) + "_UUID ACTIVE'\n"
	}
	script += "echo '9: fake-OST0009_UUID INACTIVE'\n;;\n*) exit 3;;\nesac\n"
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "lfs"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// TestLustre: for a level on Lustre doctor reports how its files are striped, and the stripes that would suit the job.
// The kind of file system and lfs are fakes.
func TestLustre(t *testing.T) {
	for name, c := range map[string]struct {
		layout  string
		targets int
		opt     Options
		noTool  bool
		level   string
		state   State
		detail  string
		remedy  string
	}{
		"one target, few nodes": {layout: plain, targets: 8, opt: Options{Nodes: 2}, state: Warning,
			detail: "1 storage target, 1.0 MiB on one before the next; the file system has 8",
			remedy: "lfs setstripe -E 64M -c 1 -E -1 -S 4M -c 4 /lustre/dir"},
		"many nodes": {layout: plain, targets: 8, opt: Options{Nodes: 100}, state: OK, detail: "suits the job"},
		"in parts": {layout: parts, targets: 2, opt: Options{Nodes: 1}, state: OK,
			detail: "all storage targets, 4.0 MiB"},
		"too many": {layout: wide, targets: 8, opt: Options{Nodes: 8}, state: Warning,
			remedy: "-c 1 /lustre/dir"},
		"nothing is known": {layout: plain, state: OK, detail: "1 storage target"},
		"small stripes": {layout: tiny, targets: 2, opt: Options{Nodes: 1}, state: Warning,
			remedy: "-S 4M"},
		"local": {layout: plain, targets: 8, opt: Options{Nodes: 2}, level: "local", state: OK,
			detail: "1 storage target"},
		"no lfs":         {noTool: true, state: Warning, detail: "lfs is not on PATH", remedy: "module"},
		"says something": {layout: "no stripe info", state: Warning, detail: "no stripe info", remedy: "ask"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.noTool {
				t.Setenv("PATH", t.TempDir())
			} else {
				fakeLFS(t, c.layout, c.targets)
			}
			if c.level == "" {
				c.level = "global"
			}
			r := &report{Options: c.opt}
			r.lustre(t.Context(), c.level, "/lustre/dir")
			f := states(r)[c.level+": Lustre"]
			if f.State != c.state || !strings.Contains(f.Detail, c.detail) || !strings.Contains(f.Remedy, c.remedy) ||
				(c.remedy == "") != (f.Remedy == "") {
				t.Errorf("got %+v, want %s, %q, %q", f, c.state, c.detail, c.remedy)
			}
		})
	}
}

// TestLustreIsAsked: the directory's file system decides whether lfs is asked.
func TestLustreIsAsked(t *testing.T) {
	fakeLFS(t, plain, 8)
	dir := t.TempDir()
	for _, kind := range []string{"lustre", "ext4"} {
		r := &report{Options: Options{Global: dir, Nodes: 2}, kindOf: func(string) (vfs.Kind, error) {
			return vfs.Kind{Name: kind, Remote: kind == "lustre"}, nil
		}}
		lookDirectories(t.Context(), r)
		if f, asked := states(r)["global: Lustre"]; asked != (kind == "lustre") {
			t.Errorf("on %s: %+v", kind, f)
		}
	}
}
