package coordinated

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/storage"
)

func (c *Checkpointer) loadVars(ctx context.Context, sh *storage.Shard, sizes map[string]int64) (map[string]entry,
	error) {
	table := make([]byte, sizes[sectionVars])
	if err := sh.ReadAt(ctx, sectionVars, table, 0); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	list, err := decodeVars(table)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	entries := map[string]entry{}
	for _, e := range list {
		entries[e.name] = e
	}
	return entries, nil
}

// compare checks that the program protects just what the checkpoint holds.
func (c *Checkpointer) compare(entries map[string]entry, sizes map[string]int64) error {
	var errs []error
	for _, r := range c.state.regions {
		e, ok := entries[r.name]
		switch {
		case !ok:
			errs = append(errs, &MismatchError{Name: r.name, Now: r.kind()})
		case e.kind != r.kind():
			errs = append(errs, &MismatchError{Name: r.name, Saved: e.kind, Now: r.kind()})
		}
	}
	for _, d := range c.state.devices {
		if _, ok := sizes[sectionGPU+d.name]; !ok {
			errs = append(errs, &MismatchError{Name: d.name, Now: "a device"})
		}
	}
	for name, e := range entries {
		if !c.state.names[name] {
			errs = append(errs, &MismatchError{Name: name, Saved: e.kind})
		}
	}
	for section := range sizes {
		if name, ok := deviceName(section); ok && !c.state.names[name] {
			errs = append(errs, &MismatchError{Name: name, Saved: "a device"})
		}
	}
	return errors.Join(errs...)
}

// deviceName returns the device whose object record a section is; the sections
// with contents have one more part to their names.
func deviceName(section string) (string, bool) {
	name, ok := strings.CutPrefix(section, sectionGPU)
	return name, ok && name != "" && !strings.Contains(name, "/")
}

// readRegion fills a staged region from the shard.
func readRegion(ctx context.Context, sh *storage.Shard, dst []byte, e entry) error {
	if e.inline != nil {
		copy(dst, e.inline)
		return nil
	}
	return sh.ReadAt(ctx, sectionData+e.name, dst, 0)
}

// loadDevice reads a device's objects and contents; size is that of their record.
func (c *Checkpointer) loadDevice(ctx context.Context, sh *storage.Shard, d namedDevice, size int64, l *laps) error {
	record := make([]byte, size)
	if err := sh.ReadAt(ctx, sectionGPU+d.name, record, 0); err != nil {
		return err
	}
	var r reads
	err := d.dev.Restore(ctx, record, func(i int, dst []byte, off int64) error {
		r.begin()
		defer r.end()
		defer c.reading.read.Add(int64(len(dst)))
		return sh.ReadAt(ctx, contentSection(d.name, i), dst, off)
	})
	l.until(r.first, PartObjects)
	l.until(r.last, PartContents)
	l.lap(PartDeviceUp)
	return err
}
