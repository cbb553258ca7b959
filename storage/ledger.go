package storage

import (
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// writeLedgers brings the ledgers of this rank up to date with what is on disk, at
// those of the named levels, or with no name of all, where this run has committed: a
// run that only looked must not forget what was there before. Ledgers are hints: that
// one cannot be written is told and no more.
func (s *Store) writeLedgers(levels ...string) {
	for _, l := range s.levels {
		if l.newest() == 0 || !named(levels, l) || l.Traits().Shared && s.opt.Rank != 0 {
			continue // rank 0 writes that of the shared directory
		}
		book, err := s.ledgerOf(l)
		if err == nil {
			err = l.WriteLedger(book)
		}
		if err != nil {
			s.log.Debug("cannot write the list of what a level should hold", "level", l.Name(), "err", err)
		}
	}
}

// newest is the newest epoch that this run has committed at the level.
func (l *levelState) newest() Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (s *Store) ledgerOf(here *levelState) (*format.Ledger, error) {
	old, err := here.ReadLedger(s.opt.Rank)
	if err != nil {
		old = &format.Ledger{}
	}
	book := &format.Ledger{Rank: s.opt.Rank, Node: s.opt.Node}
	for _, l := range s.levels {
		v := format.LedgerLevel{Name: l.Name(), Keep: l.cfg.Keep, KeepEvery: l.cfg.KeepEvery}
		var err error
		switch last := l.newest(); {
		case l == here:
			v.Epochs, err = level.Inventory(l)
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
