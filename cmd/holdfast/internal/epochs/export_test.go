package epochs

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/storage"
)

// stateDir has epoch 3 of two ranks as a program with a step, an array and a device leaves it; the bytes are those
// that docs/FORMAT.md describes. The result has what each rank protected.
func stateDir(t *testing.T) (dir string, energy, density [2][]byte) {
	t.Helper()
	dir = t.TempDir()
	var infos []storage.ShardInfo
	var stores []*storage.Store
	for r := range 2 {
		rnd := rand.NewChaCha8([32]byte{byte(r), 9})
		energy[r], density[r] = make([]byte, 1_000_008), make([]byte, 4096)
		rnd.Read(energy[r])
		rnd.Read(density[r])
		s, err := storage.Open(t.Context(), storage.Options{Job: "sun", Rank: r, Size: 2, Node: "n1",
			Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: dir}}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var secs []storage.Section
		for _, x := range []struct {
			name string
			b    []byte
		}{{"vars", varsTable(r)}, {"data/energy", energy[r]}, {"gpu/gpu", gpuRecord(t)}, {"gpu/gpu/0", density[r]},
			{"gpu/gpu/1", []byte("8 bytes.")}, {"mailbox", []byte("{}")}} {
			secs = append(secs, storage.Section{Name: x.name, Size: int64(len(x.b)), Source: storage.Bytes(x.b)})
		}
		info, err := s.Put(t.Context(), 3, storage.LevelGlobal, secs)
		if err != nil {
			t.Fatal(err)
		}
		infos, stores = append(infos, info), append(stores, s)
	}
	if err := stores[0].Commit(t.Context(), 3, storage.LevelGlobal, infos); err != nil {
		t.Fatal(err)
	}
	return dir, energy, density
}

// varsTable has the step inline, and energy in a section.
func varsTable(rank int) []byte {
	b := []byte("HFVR\x01\x00\x02\x00\x00\x00")
	entry := func(name, kind string, size uint64, inline byte) {
		for _, s := range []string{name, kind} {
			b = append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
		}
		b = append(binary.LittleEndian.AppendUint64(b, size), inline)
	}
	entry("step", "value int64", 8, 1)
	entry("energy", "slice float64", 1_000_008, 0)
	return binary.LittleEndian.AppendUint64(b, uint64(4200+rank))
}

// gpuRecord returns the example of docs/FORMAT.md: among others a buffer "x" of 4096 bytes and one of 8 without a name.
func gpuRecord(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "<!-- gpu record example, version 3 -->\n```\n")
	rest, _, _ = strings.Cut(rest, "```")
	var b []byte
	for line := range strings.Lines(rest) {
		digits := regexp.MustCompile(`^([0-9a-f]{2} ?)+`).FindString(line)
		part, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, part...)
	}
	return b
}

// TestExportVerb lists what an epoch has, and writes host memory, small values and device memory to files.
func TestExportVerb(t *testing.T) {
	dir, energy, density := stateDir(t)
	code, out, errs := run(t, "export", "3", "--from", dir)
	for _, want := range []string{`step +value int64 +8 `, `energy +slice float64 +1000008 +977 KiB +data/energy`,
		`gpu/x +buffer +4096 `, `gpu/gpu/1 +buffer +8 `, `mailbox +messages`} {
		if code != cli.Good || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("list: got exit code %d, %q, %s, want %s", code, errs, out, want)
		}
	}
	to := t.TempDir()
	file := func(name string) string { return filepath.Join(to, name) }
	for _, c := range []struct {
		args, want string
		file       string
		bytes      []byte
	}{
		{"3 energy --rank 1 -o " + file("e"), "slice float64", "e", energy[1]},
		{"newest gpu/x --rank 0 -o " + file("x"), "buffer", "x", density[0]},
		{"3 data/energy --rank 0 -o " + file("s"), "977 KiB", "s", energy[0]},
		{"3 gpu/gpu/1 --rank 0 --json -o " + file("g"), `"type":"buffer","bytes":8,"section":"gpu/gpu/1",`, "g",
			[]byte("8 bytes.")},
		{"3 step --rank 1 -o " + file("t"), "value int64", "t", binary.LittleEndian.AppendUint64(nil, 4201)},
		{"3 step -o " + file("all.{rank}"), "all.1", "all.0", binary.LittleEndian.AppendUint64(nil, 4200)},
		{"3 step --rank 0 --force -o " + file("t"), "", "t", binary.LittleEndian.AppendUint64(nil, 4200)},
	} {
		code, out, errs := run(t, append([]string{"export", "--from", dir}, strings.Fields(c.args)...)...)
		b, err := os.ReadFile(file(c.file))
		if code != cli.Good || !strings.Contains(out, c.want) || err != nil || !bytes.Equal(b, c.bytes) {
			t.Errorf("%s: got exit code %d, %q, %q, %d bytes, %v", c.args, code, out, errs, len(b), err)
		}
	}
	if code, out, errs := run(t, "export", "3", "energy", "--from", dir, "--rank", "1", "-o", "-"); code != cli.Good ||
		out != string(energy[1]) || !strings.Contains(errs, "slice float64") {
		t.Errorf("to standard output: got exit code %d, %d bytes, %q", code, len(out), errs)
	}
	list, err := os.ReadDir(to)
	if err != nil || len(list) != 7 {
		t.Errorf("got %v, %v, want seven files", list, err)
	}
}

// TestExportRefuses: mistakes are named, and what is damaged gives no file.
func TestExportRefuses(t *testing.T) {
	dir, energy, _ := stateDir(t)
	to := t.TempDir()
	for args, want := range map[string]string{
		"3 energy":                            "give the file with -o",
		"3 -o x":                              "needs a SECTION",
		"3 energy -o x":                       "2 ranks: choose one",
		"3 energy --rank 2 -o x":              "ranks 0 to 1",
		"3 enrgy --rank 0 -o x":               `has no section "enrgy"; it has energy, gpu/gpu`,
		"4 energy --rank 0 -o x":              "no epoch 4",
		"3 energy --rank 0 -o - --json":       "do not go together",
		"3 energy --rank 0 -o " + to + "/a/b": "no such file",
	} {
		code, out, errs := run(t, append([]string{"export", "--from", dir}, strings.Fields(args)...)...)
		if code != cli.NoLook || !strings.Contains(errs, want) {
			t.Errorf("%s: got exit code %d, %q, %q, want %q", args, code, out, errs, want)
		}
	}
	name := filepath.Join(to, "e")
	if err := os.WriteFile(name, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	shard := filepath.Join(dir, "epoch-0000000003", "rank-000001.shard")
	if code, _, errs := run(t, "export", "3", "energy", "--rank", "1", "--from", dir, "-o", name); code != cli.NoLook ||
		!strings.Contains(errs, "--force") {
		t.Errorf("the file exists: got exit code %d, %q", code, errs)
	}
	if err := os.Truncate(shard, 700_000); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"--force -o " + name, "-o " + name + "2", "--json -o " + name + "2"} {
		code, out, errs := run(t, append([]string{"export", "3", "energy", "--rank", "1", "--from", dir},
			strings.Fields(args)...)...)
		if code != cli.Bad || !strings.Contains(errs, "rank-000001") || !strings.Contains(errs, "holdfast repair") ||
			strings.Contains(args, "json") == (out == "") {
			t.Errorf("%s, damaged: got exit code %d, %q, %q", args, code, out, errs)
		}
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "mine" {
		t.Errorf("the file has become %q, %v", b, err)
	}
	if list, err := os.ReadDir(to); err != nil || len(list) != 1 {
		t.Errorf("left: %v, %v", list, err)
	}
	// A copy from before the damage serves in its place.
	site := filepath.Join(t.TempDir(), "site")
	other, _, _ := stateDir(t)
	if code, _, errs := run(t, "copy", other, "--to", site); code != cli.Good {
		t.Fatal(errs)
	}
	code, out, errs := run(t, "export", "-e", "3", "energy", "--rank", "1", "--from", dir, "--from", site, "-o", "-")
	if code != cli.Good || out != string(energy[1]) {
		t.Errorf("with a good copy: got exit code %d, %d bytes, %q", code, len(out), errs)
	}
}
