package coordinated

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/storage"
)

// load reads a shard into the program. It looks at all names and kinds before
// it touches anything; after an error from then on, the program's state is
// undefined until another epoch has been loaded.
func (c *Checkpointer) load(ctx context.Context, sh *storage.Shard, l *laps) error {
	sizes := map[string]int64{}
	for _, s := range sh.Sections() {
		sizes[s.Name] = s.Size
	}
	entries, err := c.loadVars(ctx, sh, sizes)
	if err != nil {
		return err
	}
	if err := c.compare(entries, sizes); err != nil {
		return err
	}
	for _, r := range c.state.regions {
		if err := loadRegion(ctx, sh, r, entries[r.name]); err != nil {
			return fmt.Errorf("restore %q: %w", r.name, err)
		}
		c.reading.read.Add(entries[r.name].size)
	}
	l.lap(PartMemory)
	for _, d := range c.state.devices {
		if err := c.loadDevice(ctx, sh, d, sizes[sectionGPU+d.name], l); err != nil {
			return fmt.Errorf("restore %q: %w", d.name, err)
		}
	}
	mail := make([]byte, sizes[sectionMailbox])
	if err := sh.ReadAt(ctx, sectionMailbox, mail, 0); err != nil {
		return fmt.Errorf("restore mailbox: %w", err)
	}
	if err := c.endpoint.LoadMailbox(mail); err != nil {
		return fmt.Errorf("restore mailbox: %w", err)
	}
	return nil
}

func (c *Checkpointer) loadVars(ctx context.Context, sh *storage.Shard, sizes map[string]int64) (map[string]entry, error) {
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

func loadRegion(ctx context.Context, sh *storage.Shard, r namedRegion, e entry) error {
	dst, err := r.room(e.size)
	if err != nil {
		return err
	}
	if e.inline != nil {
		copy(dst, e.inline)
	} else if err := sh.ReadAt(ctx, sectionData+r.name, dst, 0); err != nil {
		return err
	}
	return r.settle()
}

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
