package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// ledger is what a rank knows should be in its directory of a level, and which
// epochs it knows of at the others. Verify tells by it what is missing from what
// was pruned; nothing else reads it, and without it nothing is lost.
type ledger struct {
	rank   int
	node   string
	levels []ledgerLevel
}

// ledgerLevel is one level of the job.
type ledgerLevel struct {
	name            string
	keep, keepEvery int
	epochs          []ledgerEpoch // committed there, as far as the rank knows
}

// ledgerEpoch is one epoch of a level. files are those in the directory of the
// ledger; none for other levels, and none at global.
type ledgerEpoch struct {
	epoch Epoch
	files []string
}

const (
	ledgerPrefix = "epochs-"
	ledgerLimit  = 16 << 20
)

func ledgerName(rank int) string { return fmt.Sprintf("%s%06d", ledgerPrefix, rank) }

func isLedger(name string) bool {
	v, err := strconv.ParseUint(strings.TrimPrefix(name, ledgerPrefix), 10, 31)
	return err == nil && ledgerName(int(v)) == name
}

func (l *ledger) encode() []byte {
	var e encoder
	e.u32(uint32(l.rank))
	e.str(l.node)
	e.u32(uint32(len(l.levels)))
	for _, v := range l.levels {
		e.str(v.name)
		e.u32(uint32(v.keep))
		e.u32(uint32(v.keepEvery))
		e.u32(uint32(len(v.epochs)))
		for _, p := range v.epochs {
			e.u64(uint64(p.epoch))
			e.u32(uint32(len(p.files)))
			for _, f := range p.files {
				e.str(f)
			}
		}
	}
	return sealRecord(kindLedger, e.b)
}

func decodeLedger(file string, b []byte) (*ledger, error) {
	payload, n, err := openRecord(file, b, kindLedger)
	if err != nil {
		return nil, err
	}
	d := &decoder{b: payload}
	l := &ledger{rank: int(d.u32()), node: d.str()}
	for range d.count(14) {
		v := ledgerLevel{name: d.str(), keep: int(d.u32()), keepEvery: int(d.u32())}
		for range d.count(12) {
			p := ledgerEpoch{epoch: Epoch(d.u64())}
			for range d.count(2) {
				p.files = append(p.files, d.str())
			}
			v.epochs = append(v.epochs, p)
		}
		l.levels = append(l.levels, v)
	}
	if !d.done() || n != len(b) {
		return nil, &CorruptError{File: file, Len: int64(len(b)), Reason: "ledger: fields do not fit"}
	}
	return l, nil
}

// writeLedgers brings the ledgers of this rank up to date with what is on disk, at
// the levels where this run has committed: a run that only looked must not forget
// what was there before. Ledgers are hints: that one cannot be written is told and
// no more.
func (s *Store) writeLedgers() {
	for _, l := range s.levels {
		if l.newest() == 0 || l.name == LevelGlobal && s.opt.Rank != 0 {
			continue // rank 0 writes that of the shared directory
		}
		book, err := s.ledgerOf(l)
		if err == nil {
			err = l.writeLedger(book)
		}
		if err != nil {
			s.log.Debug("what should be at a level is not noted", "level", l.name, "err", err)
		}
	}
}

// newest is the newest epoch that this run has committed at the level.
func (l *level) newest() Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (s *Store) ledgerOf(here *level) (*ledger, error) {
	old := &ledger{}
	file := join(here.path, ledgerName(s.opt.Rank))
	if b, err := readFile(here.fs, file, ledgerLimit); err == nil {
		if have, err := decodeLedger(file, b); err == nil {
			old = have
		}
	}
	book := &ledger{rank: s.opt.Rank, node: s.opt.Node}
	for _, l := range s.levels {
		v := ledgerLevel{name: l.name, keep: l.cfg.Keep, keepEvery: l.cfg.KeepEvery}
		var err error
		switch last := l.newest(); {
		case l == here:
			v.epochs, err = l.inventory()
		case last > 0:
			v.epochs = []ledgerEpoch{{epoch: last}}
		case old.at(l.name) != nil:
			v.epochs = old.at(l.name).epochs
		}
		if err != nil {
			return nil, err
		}
		book.levels = append(book.levels, v)
	}
	return book, nil
}

// inventory lists what is committed in the directory.
func (l *level) inventory() ([]ledgerEpoch, error) {
	epochs, err := l.epochs()
	if err != nil {
		return nil, err
	}
	slices.Reverse(epochs)
	var out []ledgerEpoch
	for _, e := range epochs {
		p := ledgerEpoch{epoch: e}
		have, err := l.hasManifest(e)
		if err != nil || !have {
			continue
		}
		if l.name != LevelGlobal { // there the manifest names all that there is
			list, err := l.fs.ReadDir(l.epochPath(e))
			if err != nil {
				continue // pruned by another rank meanwhile
			}
			for _, f := range list {
				if _, _, ok := parseName(f.Name); ok {
					p.files = append(p.files, f.Name)
				}
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// writeLedger replaces a rank's ledger in one step.
func (d *levelDir) writeLedger(l *ledger) error {
	final := join(d.path, ledgerName(l.rank))
	b := l.encode()
	if have, err := readFile(d.fs, final, ledgerLimit); err == nil && string(have) == string(b) {
		return nil
	}
	temp := join(d.path, tempName(ledgerName(l.rank), d.owner))
	if err := writeFile(d.fs, temp, b); err != nil {
		return err
	}
	return d.fs.Rename(temp, final)
}

// readLedgers reads all ledgers of a directory. What is wrong with one comes back
// beside the others.
func (d *levelDir) readLedgers() (out []*ledger, problems map[string]error, err error) {
	list, err := d.fs.ReadDir(d.path)
	if err != nil {
		return nil, nil, d.unusable(err)
	}
	problems = map[string]error{}
	for _, f := range list {
		if !isLedger(f.Name) {
			continue
		}
		file := join(d.path, f.Name)
		b, err := readFile(d.fs, file, ledgerLimit)
		var l *ledger
		if err == nil {
			l, err = decodeLedger(file, b)
		}
		if err == nil && (ledgerName(l.rank) != f.Name || !l.isOf(d.name)) {
			err = &CorruptError{File: file, Len: int64(len(b)), Reason: "ledger of another rank or level"}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // replaced meanwhile
		case err != nil:
			problems[f.Name] = err
		default:
			out = append(out, l)
		}
	}
	return out, problems, nil
}

// isOf says whether the ledger was written to a directory of the level.
func (l *ledger) isOf(level string) bool { return l.at(level) != nil }

// at finds a level; nil if the rank did not use it.
func (l *ledger) at(level string) *ledgerLevel {
	for i := range l.levels {
		if l.levels[i].name == level {
			return &l.levels[i]
		}
	}
	return nil
}

// forget takes epochs that are removed on purpose out of the ledgers of a
// directory.
func (d *levelDir) forget(gone []Epoch) error {
	books, _, err := d.readLedgers()
	if err != nil || len(gone) == 0 {
		return err
	}
	for _, l := range books {
		v := l.at(d.name)
		v.epochs = slices.DeleteFunc(v.epochs, func(p ledgerEpoch) bool { return slices.Contains(gone, p.epoch) })
		if err := d.writeLedger(l); err != nil {
			return err
		}
	}
	return nil
}
