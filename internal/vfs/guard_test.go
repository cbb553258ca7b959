package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// within fails the test when do waits for something.
func within(t *testing.T, what string, do func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s waits", what)
		return nil
	}
}

// TestOnlyRegularFilesAreOpened: whatever is where a file should be is
// refused by name, at once.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	if err := os.WriteFile(real, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"fifo":      {func(p string) error { return syscall.Mkfifo(p, 0o600) }, "a FIFO"},
		"socket":    {func(p string) error { return syscall.Mknod(p, syscall.S_IFSOCK|0o600, 0) }, "a socket"},
		"device":    {func(p string) error { return syscall.Mknod(p, syscall.S_IFCHR|0o600, 1<<8|3) }, "a device"},
		"directory": {func(p string) error { return os.Mkdir(p, 0o700) }, "a directory"},
		"link":      {func(p string) error { return os.Symlink(real, p) }, "a symbolic link"},
		"dangling":  {func(p string) error { return os.Symlink("nowhere", p) }, "a symbolic link"},
	} {
		path := filepath.Join(dir, name)
		if err := c.make(path); err != nil {
			if errors.Is(err, syscall.EPERM) && os.Geteuid() != 0 {
				continue // only root makes devices
			}
			t.Fatal(err)
		}
		for what, open := range map[string]func() (File, error){
			"open":        func() (File, error) { return OS{}.Open(path) },
			"edit":        func() (File, error) { return OS{}.Edit(path, false) },
			"edit direct": func() (File, error) { return OS{}.Edit(path, true) },
		} {
			err := within(t, what+" of "+name, func() error { _, err := open(); return err })
			if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%s of a %s: got %v, want a refusal that names it", what, name, err)
			}
		}
		if _, err := (OS{}).ReadFile(path, 10); !errors.Is(err, ErrUnsafe) {
			t.Errorf("ReadFile of a %s: got %v", name, err)
		}
		if name != "directory" {
			err := within(t, "list", func() error { _, err := OS{}.ReadDir(path); return err })
			if err == nil {
				t.Errorf("a %s was listed", name)
			}
			if err := within(t, "sync", func() error { return OS{}.SyncDir(path) }); err == nil {
				t.Errorf("a %s was synced as a directory", name)
			}
			if err := (OS{}).CheckDir(path, false); err == nil {
				t.Errorf("a %s was accepted as a directory", name)
			}
		}
	}
}

// TestForeignIsRefused: what another user owns or may write to is refused,
// unless it is allowed.
func TestForeignIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away; make test runs as root")
	}
	dir := t.TempDir()
	const other = 12345
	file, sub := filepath.Join(dir, "file"), filepath.Join(dir, "sub")
	for _, c := range []struct {
		what string
		do   func() error
		want string // "": accepted
	}{
		{"own", func() error { return errors.Join(os.WriteFile(file, nil, 0o644), os.Mkdir(sub, 0o755)) }, ""},
		{"another's", func() error { return errors.Join(os.Chown(file, other, 0), os.Chown(sub, other, 0)) }, "12345"},
		{"own again", func() error { return errors.Join(os.Chown(file, 0, other), os.Chown(sub, 0, other)) }, ""},
		{"writable by the group", func() error { return errors.Join(os.Chmod(file, 0o620), os.Chmod(sub, 0o770)) },
			"write"},
		{"writable by all", func() error { return errors.Join(os.Chmod(file, 0o602), os.Chmod(sub, 0o707)) }, "write"},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		for _, allow := range []bool{false, true} {
			o := OS{AllowForeign: allow}
			f, err := o.Open(file)
			if err == nil {
				f.Close()
			}
			for what, err := range map[string]error{"file": err, "directory": o.CheckDir(sub, false)} {
				refused := c.want != "" && !allow
				if (err != nil) != refused {
					t.Errorf("%s %s, allowed %v: got %v", c.what, what, allow, err)
				}
				if refused && (!errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), c.want) ||
					!strings.Contains(err.Error(), "HOLDFAST_ALLOW_FOREIGN")) {
					t.Errorf("%s %s: got %v, want %q and the setting in it", c.what, what, err, c.want)
				}
			}
		}
	}
}

// TestLinkToADirectory: a user's own link to a directory is followed, that of
// another user or in a place where others may put one is not.
func TestLinkToADirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give links away; make test runs as root")
	}
	base := t.TempDir()
	real := filepath.Join(base, "real")
	if err := os.Mkdir(real, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		parent os.FileMode
		owner  int
		good   bool
	}{
		"own":                       {0o755, 0, true},
		"own in a sticky directory": {0o777 | os.ModeSticky, 0, true},
		"another's":                 {0o777 | os.ModeSticky, 12345, false},
		"where others may write":    {0o777, 0, false},
	} {
		parent := filepath.Join(base, name)
		link := filepath.Join(parent, "link")
		err := errors.Join(os.Mkdir(parent, 0o700), os.Symlink(real, link), os.Lchown(link, c.owner, 0),
			os.Chmod(parent, c.parent))
		if err != nil {
			t.Fatal(err)
		}
		if err := (OS{}).CheckDir(link, true); (err == nil) != c.good {
			t.Errorf("%s: got %v", name, err)
		}
		if err := (OS{}).CheckDir(link, false); !errors.Is(err, ErrUnsafe) {
			t.Errorf("%s, where no link may be: got %v", name, err)
		}
		if err := (OS{AllowForeign: true}).CheckDir(link, true); err != nil {
			t.Errorf("%s, allowed: %v", name, err)
		}
	}
}

// TestWhatIsMadeIsPrivate, unless it is to be shared.
func TestWhatIsMadeIsPrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	for s, want := range map[Sharing][2]os.FileMode{Private: {0o600, 0o700}, Group: {0o640, 0o750},
		World: {0o644, 0o755}} {
		o := OS{Sharing: s}
		base := t.TempDir()
		sub := filepath.Join(base, "sub")
		if err := o.Mkdir(sub); err != nil {
			t.Fatal(err)
		}
		for _, direct := range []bool{false, true} {
			name := filepath.Join(sub, map[bool]string{false: "a", true: "b"}[direct])
			f, err := o.Create(name, direct)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want[0] {
				t.Errorf("%v: got file mode %v, %v, want %v", s, info.Mode(), err, want[0])
			}
		}
		if info, err := os.Stat(sub); err != nil || info.Mode().Perm() != want[1] {
			t.Errorf("%v: got directory mode %v, %v, want %v", s, info.Mode(), err, want[1])
		}
	}
	if _, err := ParseSharing("public"); err == nil {
		t.Error("an unknown word was accepted")
	}
}

// TestScratchDirectory: a directory in which all users may create files is accepted if only the owners
// can remove them, as in /tmp; files of others in it are refused.
func TestScratchDirectory(t *testing.T) {
	dir := t.TempDir()
	for mode, ok := range map[os.FileMode]bool{0o777 | os.ModeSticky: true, 0o775 | os.ModeSticky: true, 0o777: false,
		0o775: false, 0o755: true} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := (OS{}).CheckDir(dir, true); (err == nil) != ok {
			t.Errorf("mode %v: got %v, want it accepted: %v", mode, err, ok)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away; make test runs as root")
	}
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(dir, "epoch-0000000001")
	if err := errors.Join(os.Mkdir(theirs, 0o755), os.Chown(theirs, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	if err := (OS{}).CheckDir(theirs, false); !errors.Is(err, ErrUnsafe) {
		t.Errorf("another's directory in it: got %v, want a refusal", err)
	}
}
