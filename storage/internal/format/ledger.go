package format

// Ledger is what a rank knows should be in its directory of a level, and which
// epochs it knows of at the others. Verify tells by it what is missing from what
// was pruned; nothing else reads it, and without it nothing is lost.
type Ledger struct {
	Rank   int
	Node   string
	Levels []LedgerLevel
	Run    Identity // that it belongs to; zero in records of older releases
}

// LedgerLevel is one level of the job.
type LedgerLevel struct {
	Name            string
	Keep, KeepEvery int
	Epochs          []LedgerEpoch // committed there, as far as the rank knows
}

// LedgerEpoch is one epoch of a level. Files are those in the directory of the
// ledger; none for other levels, and none at global.
type LedgerEpoch struct {
	Epoch Epoch
	Files []string
}

// Encode returns the sealed record.
func (l *Ledger) Encode() []byte {
	var e Encoder
	e.U32(uint32(l.Rank))
	e.Str(l.Node)
	e.U32(uint32(len(l.Levels)))
	for _, v := range l.Levels {
		e.Str(v.Name)
		e.U32(uint32(v.Keep))
		e.U32(uint32(v.KeepEvery))
		e.U32(uint32(len(v.Epochs)))
		for _, p := range v.Epochs {
			e.U64(uint64(p.Epoch))
			e.U32(uint32(len(p.Files)))
			for _, f := range p.Files {
				e.Str(f)
			}
		}
	}
	return sealOwned(kindLedger, &e, l.Run)
}

// DecodeLedger opens what Ledger.Encode made.
func DecodeLedger(file string, b []byte) (*Ledger, error) {
	l := &Ledger{}
	var err error
	l.Run, err = decodeOwned(file, b, kindLedger, func(d *Decoder) {
		l.Rank, l.Node = int(d.U32()), d.Str()
		for range d.Count(14) {
			v := LedgerLevel{Name: d.Str(), Keep: int(d.U32()), KeepEvery: int(d.U32())}
			for range d.Count(12) {
				p := LedgerEpoch{Epoch: Epoch(d.U64())}
				for range d.Count(2) {
					p.Files = append(p.Files, d.Str())
				}
				v.Epochs = append(v.Epochs, p)
			}
			l.Levels = append(l.Levels, v)
		}
	})
	return l, err
}

// IsOf says whether the ledger was written to a directory of the level.
func (l *Ledger) IsOf(level string) bool { return l.At(level) != nil }

// At finds a level; nil if the rank did not use it.
func (l *Ledger) At(level string) *LedgerLevel {
	for i := range l.Levels {
		if l.Levels[i].Name == level {
			return &l.Levels[i]
		}
	}
	return nil
}
