package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
)

// album is a directory of images that no process ever was.
type album struct {
	t       *testing.T
	dir     string
	started string // a file that is there once a process is to be made
	starter Starter
}

func newAlbum(t *testing.T) *album {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	a := &album{t: t, dir: t.TempDir()}
	a.started = filepath.Join(t.TempDir(), "started")
	self := filepath.Join(t.TempDir(), "guard")
	if err := errors.Join(os.Chmod(a.dir, 0o700),
		os.WriteFile(self, []byte("#!/bin/sh\necho $3 >"+a.started+"\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	a.starter = Starter{CRIU: CRIU{Path: "/nowhere"}, Self: self}
	return a
}

// sections of an image with all kinds of them; bytes of one name say that name.
func (a *album) sections(change func(r *record)) (list []storage.Section) {
	a.t.Helper()
	r := whole(a.t)
	r.Programs[0].Areas = []memory{{0, 9000, false}}
	change(r)
	text, err := json.Marshal(r)
	if err != nil {
		a.t.Fatal(err)
	}
	add := func(name string, b []byte) {
		list = append(list, storage.Section{Name: name, Size: int64(len(b)), Source: storage.Bytes(b)})
	}
	add(recordSection, text)
	for _, name := range []string{stateOf(0), areaOf(0, 0), criuPrefix + filesImage, criuPrefix + "pages-1.img"} {
		add(name, bytes.Repeat([]byte(name+" "), 9000/len(name+" ")+1)[:9000])
	}
	return list
}

// commit makes an image, as Take does.
func (a *album) commit(e storage.Epoch, list []storage.Section) {
	a.t.Helper()
	ctx := a.t.Context()
	s, err := storage.Open(ctx, storage.Options{Job: "image of nothing", Size: 1, Node: "here", Run: "0",
		Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: a.dir}}})
	if err != nil {
		a.t.Fatal(err)
	}
	info, err := s.Put(ctx, e, storage.LevelGlobal, list)
	if err == nil {
		err = errors.Join(s.Commit(ctx, e, storage.LevelGlobal, []storage.ShardInfo{info}),
			s.Committed(e, storage.LevelGlobal))
	}
	if err = errors.Join(err, s.Close()); err != nil {
		a.t.Fatal(err)
	}
}

// restore returns the error, and whether a process was to be made.
func (a *album) restore(o RestoreOptions) (started bool, err error) {
	a.t.Helper()
	o.Dir, o.Starter = a.dir, a.starter
	_, err = Restore(a.t.Context(), o)
	_, missing := os.Stat(a.started)
	if list, _ := os.ReadDir(os.TempDir()); len(list) > 0 {
		a.t.Errorf("%v is left", list)
	}
	return missing == nil, err
}

// onFile damages a file of an image.
func onFile(name string, do func(file string) error) func(dir string) error {
	return func(dir string) error { return do(filepath.Join(dir, name)) }
}

const shardFile = "rank-000000.shard"

// flip changes a bit behind where a text is for the first time in the shard, or for the last.
func flip(find func(b, text []byte) int, text string, by int) func(dir string) error {
	return onFile(shardFile, func(file string) error {
		b, err := os.ReadFile(file)
		i := find(b, []byte(text))
		if err != nil || i < 0 {
			return errors.Join(errors.New(text), err)
		}
		b[i+by] ^= 0x10
		return os.WriteFile(file, b, 0o600)
	})
}

func resize(by int64) func(file string) error {
	return func(file string) error {
		st, err := os.Stat(file)
		if err != nil {
			return err
		}
		return os.Truncate(file, st.Size()+by)
	}
}

func truncate(file string) error { return os.Truncate(file, 0) }

// fromOlder puts the file of the image before in its place.
func fromOlder(file string) error {
	b, err := os.ReadFile(strings.Replace(file, "0002/", "0001/", 1))
	return errors.Join(err, os.WriteFile(file, b, 0o600))
}

func folderInstead(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) }

func linkInstead(file string) error {
	return errors.Join(os.Rename(file, file+"1"), os.Symlink(file+"1", file))
}

func newFolder(file string) error { return os.Mkdir(file, 0o700) }

func junk(file string) error { return os.WriteFile(file, []byte("more"), 0o600) }

// TestDamaged: an image that is not as it was written is refused by name, nothing is started, and the one before is
// taken if that is wanted. What does no harm is restored. The state of a helper is read later: TestImageRefusals of
// test/opencl.
func TestDamaged(t *testing.T) {
	first, last := bytes.Index, bytes.LastIndex
	const harmless, none = "harmless", "none" // there is no such image
	for name, c := range map[string]struct {
		damage func(dir string) error
		want   string
	}{
		"flip/record":     {flip(first, `"machine"`, 3), "hash"},
		"flip/area":       {flip(first, "area/0/0 area/0/0 ", 4000), "hash"},
		"flip/files":      {flip(first, "criu/files.img criu/files.img ", 20), "hash"},
		"flip/pages":      {flip(first, "criu/pages-1.img criu/pages-1.img ", 8000), "hash"},
		"flip/list":       {flip(last, "criu/files.img", 2), "shard index: hash"},
		"flip/end":        {flip(last, "", -1), "checksum"},
		"shard/gone":      {onFile(shardFile, os.Remove), "no such file"},
		"shard/empty":     {onFile(shardFile, truncate), "file has 0 bytes"},
		"shard/short":     {onFile(shardFile, resize(-1)), "the shard ends at"},
		"shard/half":      {onFile(shardFile, resize(-20000)), "the shard ends at"},
		"shard/long":      {onFile(shardFile, resize(4096)), "the shard ends at"},
		"shard/folder":    {onFile(shardFile, folderInstead), "a directory is where a file should be"},
		"shard/link":      {onFile(shardFile, linkInstead), "a symbolic link is where a file should be"},
		"shard/older":     {onFile(shardFile, fromOlder), "is not the shard that was committed"},
		"manifest/gone":   {onFile("manifest", os.Remove), none},
		"manifest/empty":  {onFile("manifest", truncate), "too short"},
		"manifest/short":  {onFile("manifest", resize(-1)), "manifest"},
		"manifest/older":  {onFile("manifest", fromOlder), "manifest of epoch 1"},
		"more/file":       {onFile("more", junk), harmless},
		"more/shard":      {onFile("rank-000001.shard", junk), harmless},
		"more/image":      {onFile("../epoch-0000000009", newFolder), harmless},
		"more/file/above": {onFile("../more.img", junk), harmless},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAlbum(t)
			a.commit(1, a.sections(func(*record) {}))
			a.commit(2, a.sections(func(*record) {}))
			if err := c.damage(filepath.Join(a.dir, "epoch-0000000002")); err != nil {
				t.Fatal(err)
			}
			want := "image 2: "
			if c.want == none {
				want, c.want = "has no image 2", ""
			}
			started, err := a.restore(RestoreOptions{Epoch: 2})
			if started != (c.want == harmless) {
				t.Fatalf("a process is to be made: %v, %v", started, err)
			}
			if started {
				return
			}
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s%s", err, want, c.want)
			}
			var older []error
			started, err = a.restore(RestoreOptions{Older: func(err error) { older = append(older, err) }})
			if !started || (len(older) == 1) != (c.want != "") {
				t.Errorf("the one before is not taken: %v, then %v", older, err)
			}
		})
	}
}

// taken gives a record the number of another process.
func (r *record) taken(pid int) { r.PID, r.Tree, r.Programs[0].PID = pid, []int{pid}, pid }

// TestForeign: an image of something else is refused by name, whole as it is, and nothing is started.
func TestForeign(t *testing.T) {
	drop := func(name string) func([]storage.Section) []storage.Section {
		return func(list []storage.Section) []storage.Section {
			return slices.DeleteFunc(list, func(s storage.Section) bool { return s.Name == name })
		}
	}
	whole := func(list []storage.Section) []storage.Section { return list }
	same := func(*record) {}
	for name, c := range map[string]struct {
		change   func(r *record)
		sections func([]storage.Section) []storage.Section
		want     string
	}{
		"version":    {func(r *record) { r.Version = 9 }, whole, "version 9, and this command knows 2"},
		"machine":    {func(r *record) { r.Machine = "pdp11" }, whole, "machine of another type: pdp11"},
		"kernel":     {func(r *record) { r.Kernel = "99.1.0" }, whole, "newer kernel, 99.1.0"},
		"command":    {func(r *record) { r.Command = []string{"other"} }, whole, "of another command"},
		"process":    {func(r *record) { r.taken(os.Getpid()) }, whole, "another process has now"},
		"file":       {func(r *record) { r.Files = []file{{"/nowhere", 1, false, 0, 0}} }, whole, "/nowhere"},
		"numbers":    {func(r *record) { r.PID = 0 }, whole, "does not fit together"},
		"checkpoint": {same, drop(recordSection), "a checkpoint, and no image of a process"},
		"no state":   {same, drop(stateOf(0)), `no section "opencl/0"`},
		"no area":    {same, drop(areaOf(0, 0)), `section "area/0/0" has 0 bytes, want 9000`},
		"short area": {func(r *record) { r.Programs[0].Areas[0].Bytes++ }, whole,
			`section "area/0/0" has 9000 bytes, want 9001`},
		"outside": {same, func(list []storage.Section) []storage.Section {
			return append(list, storage.Section{Name: "criu/../x.img", Size: 1, Source: storage.Bytes("x")})
		}, `section "criu/../x.img"`},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAlbum(t)
			a.commit(1, c.sections(a.sections(c.change)))
			started, err := a.restore(RestoreOptions{Command: []string{"own"}})
			if started || err == nil || !strings.HasPrefix(err.Error(), "image 1") ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q; a process is to be made: %v", err, c.want, started)
			}
		})
	}
}
