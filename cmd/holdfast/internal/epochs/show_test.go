package epochs

import (
	"encoding/binary"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestShowArrays: ls and show say which epochs any number of ranks can restore, and how arrays are divided.
func TestShowArrays(t *testing.T) {
	dir := arrayDir(t)
	local, _ := jobDirs(t)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"ls", dir}, []string{"ON OTHER COUNTS", "0-2 of 3", " yes "}},
		{[]string{"ls", "--json", dir}, []string{`"any_count":true`}},
		{[]string{"ls", local}, []string{"no: not elastic"}},
		{[]string{"ls", "--json", local}, []string{`"any_count":false,"why_not_any_count":"not elastic"`}},
		{[]string{"show", dir}, []string{"u      int32        6 x 5       divided     0-2     120 B",
			"n      value int64  -           replicated  0       8 B",
			"Epoch 5, of 3 rank(s), can be restored by any number of ranks."}},
		{[]string{"show", "--json", dir}, []string{
			`"array":"u","kind":"divided","type":"int32","dims":[6,5],"bytes":120,"owners":[0,1,2]`,
			`{"epoch":5,"any_count":true,"size":3}`}},
		{[]string{"show", local}, []string{"rank(s) 0-1 wrote it without being elastic (hf_elastic, "}},
	} {
		code, out, errs := run(t, c.args...)
		for _, w := range c.want {
			if code != cli.Good || !strings.Contains(out, w) {
				t.Errorf("%v: code %d, got\n%s%swant %q in it", c.args, code, out, errs, w)
			}
		}
	}
}

// TestExportPieces: boxes whose pieces a shard has one after the other are exported to their places.
func TestExportPieces(t *testing.T) {
	dir := t.TempDir()
	writeEpoch(t, dir, 5, 2, func(r int) (storage.Layout, []storage.Section) {
		l := layout.Local{Array: layout.Array{Name: "u", Type: "int32", Elem: 4, Dims: []int64{4, 8},
			Kind: layout.Divided, Section: "array/u"}}
		var u []byte
		for from := int64(4 * r); from < int64(4*r+4); from += 2 {
			l.Parts = append(l.Parts, layout.Box([]int64{0, from}, []int64{4, 2}))
			for i := range int64(4) {
				for j := from; j < from+2; j++ {
					u = binary.LittleEndian.AppendUint32(u, uint32(10*i+j))
				}
			}
		}
		return storage.Layout{Quiet: true, Arrays: []layout.Local{l}}, []storage.Section{
			{Name: "array/u", Size: int64(len(u)), Source: storage.Bytes(u)}}
	})
	file := filepath.Join(t.TempDir(), "u")
	if code, _, errs := run(t, "export", "5", "u", "--from", dir, "-o", file+".npy"); code != 0 {
		t.Fatalf("code %d: %s", code, errs)
	}
	b, err := os.ReadFile(file + ".npy")
	if err != nil || len(b) < 4*8*4 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	b = b[len(b)-4*8*4:]
	for i := range 4 {
		for j := range 8 {
			if got := binary.LittleEndian.Uint32(b[4*(8*i+j):]); got != uint32(10*i+j) {
				t.Errorf("element (%d, %d) is %d, want %d", i, j, got, 10*i+j)
			}
		}
	}
}

// raise makes a record one of a version to come.
func raise(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := len(b) - 4
	binary.LittleEndian.PutUint16(b[10:], 99)
	binary.LittleEndian.PutUint32(b[n:], crc32.Checksum(b[:n], crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// contents returns all files of a directory with what is in them.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, path))
		all.WriteString(path + "\n" + string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestNewerVersion: what a later release has written is not called damage, and nothing is done to it.
func TestNewerVersion(t *testing.T) {
	local, global := jobDirs(t)
	raise(t, filepath.Join(global, "epoch-0000000003", "manifest"))
	before := contents(t, local) + contents(t, global)
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"ls", "newer version, upgrade", cli.NoLook},
		{"ls --json", `"newer_version":true`, cli.NoLook},
		{"show", "this build reads up to 3: use a newer holdfast", cli.NoLook},
		{"verify", "newer version", cli.NoLook},
		{"repair", "use a newer holdfast", cli.Bad},
		{"repair --dry-run", "use a newer holdfast", cli.Bad},
		{"export 3 --from", "use a newer holdfast", cli.NoLook},
		{"copy --to " + t.TempDir() + "/to", "use a newer holdfast", cli.NoLook},
	} {
		args := append(strings.Fields(c.args), global)
		if c.args == "repair" || c.args == "verify" { // the data of the epoch are at another level
			args = append(args, local)
		}
		code, out, errs := run(t, args...)
		if code != c.code || !strings.Contains(out+errs, c.want) || strings.Contains(out+errs, "corrupt") ||
			strings.Contains(out+errs, "damaged") {
			t.Errorf("%s: code %d, %s%s; want %d and %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	if contents(t, local)+contents(t, global) != before {
		t.Error("something was written")
	}
	raise(t, filepath.Join(local, "holdfast.job"))
	if code, _, errs := run(t, "ls", local); code != cli.NoLook || !strings.Contains(errs, "use a newer holdfast") {
		t.Errorf("the file that names the job: code %d, %s", code, errs)
	}
}
