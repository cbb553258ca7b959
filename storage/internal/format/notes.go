package format

import "strings"

// Begun is what one level says: an epoch that all ranks had committed, 0 for none, where, and the nodes of the
// run that did.
type Begun struct {
	Epoch Epoch
	Level string
	Nodes []string
	Run   Identity // that it belongs to; zero in records of older releases
}

// Encode returns the sealed record.
func (b *Begun) Encode() []byte {
	var e Encoder
	e.U64(uint64(b.Epoch))
	e.Str(b.Level)
	e.U32(uint32(len(b.Nodes)))
	for _, n := range b.Nodes {
		e.Str(n)
	}
	return sealOwned(kindBegun, &e, b.Run)
}

// DecodeBegun opens what Begun.Encode made.
func DecodeBegun(file string, raw []byte) (*Begun, error) {
	b := &Begun{}
	var err error
	b.Run, err = decodeOwned(file, raw, kindBegun, func(d *Decoder) {
		b.Epoch, b.Level = Epoch(d.U64()), d.Str()
		for range d.Count(2) {
			b.Nodes = append(b.Nodes, d.Str())
		}
	})
	return b, err
}

// Marker says whose checkpoints a directory holds.
type Marker struct {
	Job   string
	Size  int
	Level string
	Run   Identity // that it belongs to; zero in records of older releases
}

// Encode returns the sealed record.
func (m *Marker) Encode() []byte {
	var e Encoder
	e.Str(m.Job)
	e.U32(uint32(m.Size))
	e.Str(m.Level)
	return sealOwned(kindMarker, &e, m.Run)
}

// DecodeMarker opens what Marker.Encode made.
func DecodeMarker(file string, b []byte) (*Marker, error) {
	m := &Marker{}
	var err error
	m.Run, err = decodeOwned(file, b, kindMarker, func(d *Decoder) {
		m.Job, m.Size, m.Level = d.Str(), int(d.U32()), d.Str()
		d.Bad = d.Bad || m.Size == 0
	})
	return m, err
}

// Process names a process among all machines and times.
type Process struct {
	Node    string // for people
	Machine string // boot and PID namespace; "" when unknown
	PID     int
	Started uint64 // clock ticks after boot; tells apart processes that had one PID
}

// Lock is the contents of the file.
type Lock struct {
	Run   string
	Owner Process
	Beat  uint64 // grows
}

// Encode returns the sealed record.
func (l *Lock) Encode() []byte {
	var e Encoder
	e.Str(l.Run)
	e.Str(l.Owner.Node)
	e.Str(l.Owner.Machine)
	e.U32(uint32(l.Owner.PID))
	e.U64(l.Owner.Started)
	e.U64(l.Beat)
	return SealRecord(kindRunLock, e.B)
}

// DecodeLock opens what Lock.Encode made.
func DecodeLock(file string, b []byte) (*Lock, error) {
	l := &Lock{}
	return l, decode(file, b, kindRunLock, func(d *Decoder) {
		l.Run = d.Str()
		l.Owner = Process{Node: d.Str(), Machine: d.Str(), PID: int(d.U32()), Started: d.U64()}
		l.Beat = d.U64()
	})
}

// RestoreAttempts counts, per epoch, restores that were begun and never survived.
type RestoreAttempts map[Epoch]int

// Encode returns the sealed record.
func (t RestoreAttempts) Encode() []byte {
	var e Encoder
	set := map[Epoch]bool{}
	for epoch := range t {
		set[epoch] = true
	}
	e.U32(uint32(len(t)))
	for _, epoch := range SortedEpochs(set) {
		e.U64(uint64(epoch))
		e.U32(uint32(t[epoch]))
	}
	return SealRecord(kindAttempts, e.B)
}

// DecodeRestoreAttempts opens what RestoreAttempts.Encode made.
func DecodeRestoreAttempts(file string, b []byte) (RestoreAttempts, error) {
	t := RestoreAttempts{}
	return t, decode(file, b, kindAttempts, func(d *Decoder) {
		for range d.Count(12) {
			e := Epoch(d.U64())
			t[e] = int(d.U32())
		}
	})
}

// Kept says that an epoch is to stay at a level until somebody removes the record. The name of
// its file is enough for that; what it holds is for people.
type Kept struct {
	Epoch Epoch
	Name  string // given by the user; may be empty
	Auto  bool   // made by the rule of a job, not by a user
	Time  int64  // when it was made, in nanoseconds since 1970 UTC
}

const keptPrefix = "kept-"

// KeptName is the file of the record of an epoch.
func KeptName(e Epoch) string { return keptPrefix + strings.TrimPrefix(EpochName(e), epochPrefix) }

// ParseKeptName reads the epoch back from the name of a record.
func ParseKeptName(name string) (Epoch, bool) {
	digits, ok := strings.CutPrefix(name, keptPrefix)
	if !ok {
		return 0, false
	}
	return ParseEpochName(epochPrefix + digits)
}

// Encode returns the sealed record.
func (k *Kept) Encode() []byte {
	var e Encoder
	e.U64(uint64(k.Epoch))
	e.Str(k.Name)
	e.U8(map[bool]uint8{true: 1}[k.Auto])
	e.U64(uint64(k.Time))
	return SealRecord(kindKept, e.B)
}

// DecodeKept opens what Kept.Encode made.
func DecodeKept(file string, raw []byte) (*Kept, error) {
	k := &Kept{}
	return k, decode(file, raw, kindKept, func(d *Decoder) {
		k.Epoch, k.Name = Epoch(d.U64()), d.Str()
		auto := d.U8()
		k.Auto, k.Time = auto == 1, int64(d.U64())
		if auto > 1 {
			d.Bad = true
		}
	})
}

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
