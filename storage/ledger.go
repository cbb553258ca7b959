package storage

import (
	"bytes"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// writeLedgers brings the ledgers of this rank up to date with what is on disk, at
// those of the named levels, or with no name of all, where this run has committed: a
// run that only looked must not forget what was there before. Ledgers are hints: that
// one cannot be written is told and no more. looks are at levels where one was taken just now.
func (s *Store) writeLedgers(looks map[*levelState]*level.Look, levels ...string) {
	for _, l := range s.levels {
		if l.newest() == 0 || !named(levels, l) || l.Traits().Shared && s.opt.Rank != 0 {
			continue // rank 0 writes that of the shared directory
		}
		if err := s.writeLedger(l, looks[l]); err != nil {
			s.log.Debug("holdfast: cannot write the list of what a level should hold", "level", l.Name(), "err", err)
		}
	}
}

// newest is the newest epoch that this run has committed at the level.
func (l *levelState) newest() Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// writeLedger writes that of a level if it has changed; look may be nil.
func (s *Store) writeLedger(l *levelState, look *level.Look) error {
	l.mu.Lock()
	old := l.book
	l.mu.Unlock()
	if old == nil {
		var err error
		if old, err = l.ReadLedger(s.opt.Rank); err != nil {
			old = &format.Ledger{}
		}
		if !s.owns(old.Run) {
			old = &format.Ledger{}
		}
	}
	book, err := s.ledgerOf(l, look, old)
	if err == nil && !bytes.Equal(book.Encode(), old.Encode()) {
		err = l.WriteLedger(book)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book = book
	return nil
}

// ledgerOf is the ledger of a level as it should be now, old the one there.
func (s *Store) ledgerOf(here *levelState, look *level.Look, old *format.Ledger) (*format.Ledger, error) {
	book := &format.Ledger{Rank: s.opt.Rank, Node: s.opt.Node, Run: s.opt.Identity}
	for _, l := range s.levels {
		v := format.LedgerLevel{Name: l.Name(), Keep: l.cfg.Keep, KeepEvery: l.cfg.KeepEvery}
		var err error
		switch last := l.newest(); {
		case l == here:
			var at level.Epochs = l
			if look != nil {
				at = look
			}
			v.Epochs, err = level.Inventory(at)
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
