package catalog

import (
	"bytes"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// WriteLedgers updates the ledgers of this rank from the disk, at the named levels, or at all without a name, if this
// run has committed there: a run that only looked must not forget earlier epochs. Ledgers are hints: a ledger that
// cannot be written is only logged. looks are at levels that were just looked at.
func (c *Catalog) WriteLedgers(looks map[*Level]*Look, levels ...string) {
	for _, l := range c.levels {
		if l.Newest() == 0 || !Named(levels, l.Name()) || l.Traits().Shared && c.Rank != 0 {
			continue // rank 0 writes that of the shared directory
		}
		if err := c.writeLedger(l, looks[l]); err != nil {
			c.Log.Debug("holdfast: cannot write the list of what a level should hold", "level", l.Name(), "err", err)
		}
	}
}

// writeLedger writes that of a level if it has changed; look may be nil.
func (c *Catalog) writeLedger(l *Level, look *Look) error {
	l.mu.Lock()
	old := l.ledger
	l.mu.Unlock()
	if old == nil {
		var err error
		if old, err = level.ReadLedger(l, c.Rank); err != nil {
			old = &format.Ledger{}
		}
		if !c.Owns(old.Run) {
			old = &format.Ledger{}
		}
	}
	book, err := c.ledgerOf(l, look, old)
	if err == nil && !bytes.Equal(book.Encode(), old.Encode()) {
		err = level.WriteLedger(l, book)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledger = book
	return nil
}

// ledgerOf returns the ledger of a level as it should be now, old the one there.
func (c *Catalog) ledgerOf(here *Level, look *Look, old *format.Ledger) (*format.Ledger, error) {
	book := &format.Ledger{Rank: c.Rank, Node: c.Node, Run: c.Identity}
	for _, l := range c.levels {
		v := format.LedgerLevel{Name: l.Name(), Keep: l.Keep, KeepEvery: l.KeepEvery}
		var err error
		switch last := l.Newest(); {
		case l == here:
			var at level.Epochs = l
			if look != nil {
				at = look
			}
			v.Epochs, err = Inventory(at)
		case last > 0:
			v.Epochs = []format.LedgerEpoch{{Epoch: last}}
		case old.At(l.Name()) != nil:
			v.Epochs = old.At(l.Name()).Epochs
		}
		if err != nil {
			return nil, err
		}
		book.Levels = append(book.Levels, v)
	}
	return book, nil
}

// Named reports whether a level is among those named; with no name all are.
func Named(levels []string, name string) bool {
	return len(levels) == 0 || slices.Contains(levels, name)
}
