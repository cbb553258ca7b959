package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/storage"
)

// prepare makes the round's directories.
func (s *soak) prepare(d *drawn) error {
	return s.alone(func() error {
		if err := os.MkdirAll(d.opt.Local, 0o755); err != nil || d.opt.Global == "" {
			return err
		}
		return os.MkdirAll(d.opt.Global, 0o755)
	})
}

// clear removes them.
func (s *soak) clear(d *drawn) error {
	return s.alone(func() error { return os.RemoveAll(d.dir()) })
}

// alone has rank 0 do what the others wait for.
func (s *soak) alone(f func() error) error {
	failed := []int64{0}
	var err error
	if s.world.Rank() == 0 {
		if err = f(); err != nil {
			failed[0] = 1
		}
	}
	if berr := mpiwrap.Bcast(s.world, failed, 0); berr != nil || err != nil {
		return errors.Join(err, berr)
	}
	if failed[0] != 0 {
		return errors.New("rank 0 has failed")
	}
	return nil
}

// spoil damages one rank's part of an epoch, at all levels.
func (d *drawn) spoil(e storage.Epoch) error {
	dir := fmt.Sprintf("epoch-%010d", e)
	files := []string{filepath.Join(d.opt.Local, dir, fmt.Sprintf("rank-%06d.shard", d.victim))}
	if d.opt.Global != "" {
		packs, err := filepath.Glob(filepath.Join(d.opt.Global, dir, "pack-*"))
		if err != nil || len(packs) == 0 {
			return fmt.Errorf("no packs in %s: %w", filepath.Join(d.opt.Global, dir), err)
		}
		files = append(files, packs...)
	}
	for _, f := range files {
		if err := d.spoilFile(f); err != nil {
			return err
		}
	}
	return nil
}

func (d *drawn) spoilFile(name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	at := int(d.where * float64(len(b)))
	if d.cut {
		return os.Truncate(name, int64(at))
	}
	b[at] ^= 0x40
	return os.WriteFile(name, b, 0o600)
}
