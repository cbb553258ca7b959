package storagetest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// act is one thing to do to a file or directory. It returns an error where it
// does not apply.
type act struct {
	name string
	sort Sort
	do   func(v *Damager, path string) error
}

var errSame = errors.New("changes nothing")

var fileActs = []act{
	{"flip a bit", Spoils, func(v *Damager, p string) error {
		return v.edit(p, func(b []byte) []byte { b[v.Rnd.IntN(len(b))] ^= 1 << v.Rnd.IntN(8); return b })
	}},
	{"flip many bits", Spoils, func(v *Damager, p string) error {
		return v.edit(p, func(b []byte) []byte {
			for range 50 {
				b[v.Rnd.IntN(len(b))] ^= 1 << v.Rnd.IntN(8)
			}
			return b
		})
	}},
	{"cut short", Spoils, func(v *Damager, p string) error {
		return v.edit(p, func(b []byte) []byte { return b[:v.Rnd.IntN(len(b))] })
	}},
	{"cut to whole pages", Spoils, func(v *Damager, p string) error {
		return v.edit(p, func(b []byte) []byte { return b[:v.Rnd.IntN(len(b)+1)&^4095] })
	}},
	{"empty", Spoils, func(v *Damager, p string) error { return os.Truncate(p, 0) }},
	{"grow by zeros", Spoils, func(v *Damager, p string) error {
		return v.edit(p, func(b []byte) []byte { return append(b, make([]byte, 1+v.Rnd.IntN(9000))...) })
	}},
	{"grow by junk", Spoils, func(v *Damager, p string) error {
		return v.edit(p, func(b []byte) []byte { return append(b, v.junk(1+v.Rnd.IntN(9000))...) })
	}},
	{"grow to gigabytes", Spoils, func(v *Damager, p string) error { return os.Truncate(p, 1<<(30+v.Rnd.IntN(8))) }},
	{"zero a page", Spoils, func(v *Damager, p string) error {
		return v.edit(p, func(b []byte) []byte { clear(v.page(b)); return b })
	}},
	{"junk in a page", Spoils, func(v *Damager, p string) error {
		return v.edit(p, func(b []byte) []byte { q := v.page(b); copy(q, v.junk(len(q))); return b })
	}},
	{"foreign bytes", Spoils, func(v *Damager, p string) error {
		return v.edit(p, func(b []byte) []byte { return v.junk(len(b)) })
	}},
	{"foreign text", Spoils, func(v *Damager, p string) error {
		return os.WriteFile(p, []byte("hello world\n"), 0o600)
	}},
	{"delete", Takes, func(_ *Damager, p string) error { return os.Remove(p) }},
	{"FIFO", Spoils, func(_ *Damager, p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) }},
	{"socket", Spoils, func(_ *Damager, p string) error {
		return errors.Join(os.Remove(p), syscall.Mknod(p, syscall.S_IFSOCK|0o600, 0))
	}},
	{"directory", Spoils, func(_ *Damager, p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }},
	{"link to itself elsewhere", Spoils, func(_ *Damager, p string) error {
		return errors.Join(os.Rename(p, p+".orig"), os.Symlink(filepath.Base(p)+".orig", p))
	}},
	{"dangling link", Spoils, func(_ *Damager, p string) error {
		return errors.Join(os.Remove(p), os.Symlink("nowhere", p))
	}},
	{"link to /dev/zero", Spoils, func(_ *Damager, p string) error {
		return errors.Join(os.Remove(p), os.Symlink("/dev/zero", p))
	}},
	{"another owner", Spoils, func(_ *Damager, p string) error { return os.Chown(p, 12345, 12345) }},
	{"writable by others", Spoils, allow(0o066)},
	{"readable by others", Harmless, allow(0o044)},
	{"replace by another", Spoils, func(v *Damager, p string) error {
		other, err := v.another(p, false)
		if err != nil || copies(p, other) {
			return errSame
		}
		b, err := read(other)
		if err != nil {
			return err
		}
		return v.edit(p, func([]byte) []byte { return b })
	}},
	{"swap with another", Spoils, func(v *Damager, p string) error {
		other, err := v.another(p, false)
		if err != nil || copies(p, other) {
			return errSame
		}
		a, aerr := read(p)
		b, berr := read(other)
		if aerr != nil || berr != nil || bytes.Equal(a, b) {
			return errSame
		}
		return errors.Join(os.WriteFile(p, b, 0o600), os.WriteFile(other, a, 0o600))
	}},
}

// allow adds permissions to those that there are: one damage must not undo another.
func allow(bits os.FileMode) func(*Damager, string) error {
	return func(_ *Damager, p string) error {
		have, err := os.Stat(p)
		if err != nil {
			return err
		}
		return os.Chmod(p, have.Mode().Perm()|bits)
	}
}

var dirActs = []act{
	{"delete", Takes, func(_ *Damager, p string) error { return os.RemoveAll(p) }},
	{"empty", Takes, func(_ *Damager, p string) error { return errors.Join(os.RemoveAll(p), os.Mkdir(p, 0o700)) }},
	{"another owner", Spoils, func(_ *Damager, p string) error { return os.Chown(p, 12345, 12345) }},
	{"writable by others", Spoils, allow(0o077)},
	{"readable by others", Harmless, allow(0o055)},
	{"file", Spoils, func(_ *Damager, p string) error {
		return errors.Join(os.RemoveAll(p), os.WriteFile(p, nil, 0o600))
	}},
	{"FIFO", Spoils, func(_ *Damager, p string) error {
		return errors.Join(os.RemoveAll(p), syscall.Mkfifo(p, 0o600))
	}},
	{"link to itself elsewhere", Spoils, func(_ *Damager, p string) error {
		return errors.Join(os.Rename(p, p+".orig"), os.Symlink(filepath.Base(p)+".orig", p))
	}},
	{"swap with another", Mixes, func(v *Damager, p string) error {
		other, err := v.another(p, true)
		if err != nil {
			return err
		}
		return errors.Join(os.Rename(p, p+".x"), os.Rename(other, p), os.Rename(p+".x", other))
	}},
	{"replace by another", Mixes, func(v *Damager, p string) error {
		other, err := v.another(p, true)
		if err != nil {
			return err
		}
		if large(other) {
			return errSame
		}
		err = os.RemoveAll(p)
		_ = os.CopyFS(p, os.DirFS(other)) // it stops at the trace of an earlier damage
		return err
	}},
	{"another number", Mixes, func(v *Damager, p string) error {
		err := os.Rename(p, filepath.Join(filepath.Dir(p), fmt.Sprintf("epoch-%010d", 1+v.Rnd.IntN(3))))
		if errors.Is(err, syscall.ENOTDIR) { // an earlier damage made that name a file
			return errSame
		}
		return err
	}},
}

// levelActs are for the directory of a level, which holds others at times.
var levelActs = []act{
	{"no epochs", Takes, func(_ *Damager, p string) error {
		list, err := filepath.Glob(filepath.Join(p, "epoch-*"))
		for _, d := range list {
			err = errors.Join(err, os.RemoveAll(d))
		}
		return err
	}},
	{"nothing in it", Mixes, func(_ *Damager, p string) error {
		list, err := os.ReadDir(p)
		for _, d := range list {
			if name := d.Name(); name != "partner" && name != "parity" {
				err = errors.Join(err, os.RemoveAll(filepath.Join(p, name)))
			}
		}
		return err
	}},
	{"another owner", Spoils, func(_ *Damager, p string) error { return os.Chown(p, 12345, 12345) }},
	{"writable by others", Spoils, allow(0o070)},
	{"readable by others", Harmless, allow(0o055)},
	{"own link", Harmless, func(_ *Damager, p string) error {
		return errors.Join(os.Rename(p, p+".orig"), os.Symlink(filepath.Base(p)+".orig", p))
	}},
	{"foreign link", Spoils, func(_ *Damager, p string) error {
		return errors.Join(os.Rename(p, p+".orig"), os.Symlink(filepath.Base(p)+".orig", p), os.Lchown(p, 12345, 12345))
	}},
	// with all that is in it: the nodes have other names
	{"swap with another", AnySort, func(v *Damager, p string) error {
		other := v.Levels[v.Rnd.IntN(len(v.Levels))]
		// "", "global", "partner", "parity"
		nested := func(p string) string { return strings.TrimLeft(strings.TrimPrefix(p, v.Base), "/n012") }
		if other == p || nested(other) != nested(p) {
			return errSame
		}
		return errors.Join(os.Rename(p, p+".x"), os.Rename(other, p), os.Rename(p+".x", other))
	}},
}

// Worst returns the worst kind among findings, as holdfast verify answers; "" if nothing
// is wrong.
func Worst(found []checkpoints.Finding) checkpoints.Kind {
	for _, k := range []checkpoints.Kind{checkpoints.Damaged, checkpoints.Missing, checkpoints.NotRedundant} {
		if slices.ContainsFunc(found, func(f checkpoints.Finding) bool { return f.Kind == k }) {
			return k
		}
	}
	return ""
}
