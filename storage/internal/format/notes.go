package format

import (
	"maps"
	"slices"
	"strings"
)

// History is the record of one level: an epoch that all ranks had committed, 0 for none, its level, and the nodes of
// that run.
type History struct {
	Epoch Epoch
	Level string
	Nodes []string
	Run   Identity // that it belongs to; zero in records of older releases
}

func (b *History) fields(f Fields) {
	f.Epoch(&b.Epoch)
	f.Str(&b.Level)
	List(f, &b.Nodes, 2, f.Str)
}

// Encode returns the sealed record.
func (b *History) Encode() []byte { return seal(kindHistory, b.fields, &b.Run) }

// DecodeHistory opens a record of History.Encode.
func DecodeHistory(file string, raw []byte) (*History, error) {
	b := &History{}
	return b, unseal(file, raw, kindHistory, b.fields, &b.Run)
}

// Marker names the job whose checkpoints a directory holds.
type Marker struct {
	Job   string
	Size  int
	Level string
	Run   Identity // that it belongs to; zero in records of older releases
}

func (m *Marker) fields(f Fields) {
	f.Str(&m.Job)
	f.Int(&m.Size)
	f.Str(&m.Level)
	f.Refuse(m.Size == 0)
}

// Encode returns the sealed record.
func (m *Marker) Encode() []byte { return seal(kindMarker, m.fields, &m.Run) }

// DecodeMarker opens a record of Marker.Encode.
func DecodeMarker(file string, b []byte) (*Marker, error) {
	m := &Marker{}
	return m, unseal(file, b, kindMarker, m.fields, &m.Run)
}

// Process names a process among all machines and times.
type Process struct {
	Node    string // for people
	Machine string // boot and PID namespace; "" when unknown
	PID     int
	Started uint64 // clock ticks after boot; tells apart processes with the same PID
}

// Lock is the contents of the file.
type Lock struct {
	Run   string
	Owner Process
	Beat  uint64 // grows
}

func (l *Lock) fields(f Fields) {
	f.Str(&l.Run)
	f.Str(&l.Owner.Node)
	f.Str(&l.Owner.Machine)
	f.Int(&l.Owner.PID)
	f.U64(&l.Owner.Started)
	f.U64(&l.Beat)
}

// Encode returns the sealed record.
func (l *Lock) Encode() []byte { return seal(kindRunLock, l.fields, nil) }

// DecodeLock opens a record of Lock.Encode.
func DecodeLock(file string, b []byte) (*Lock, error) {
	l := &Lock{}
	return l, unseal(file, b, kindRunLock, l.fields, nil)
}

// RestoreAttempts counts, per epoch, restores that were begun and never survived.
type RestoreAttempts map[Epoch]int

// attempt is an entry of the record.
type attempt struct {
	epoch Epoch
	n     int
}

func attempts(list *[]attempt) func(f Fields) {
	return func(f Fields) {
		List(f, list, 12, func(a *attempt) {
			f.Epoch(&a.epoch)
			f.Int(&a.n)
		})
	}
}

// Encode returns the sealed record.
func (t RestoreAttempts) Encode() []byte {
	var list []attempt
	for _, e := range slices.Sorted(maps.Keys(t)) {
		list = append(list, attempt{e, t[e]})
	}
	return seal(kindAttempts, attempts(&list), nil)
}

// DecodeRestoreAttempts opens a record of RestoreAttempts.Encode.
func DecodeRestoreAttempts(file string, b []byte) (RestoreAttempts, error) {
	var list []attempt
	err := unseal(file, b, kindAttempts, attempts(&list), nil)
	t := RestoreAttempts{}
	for _, a := range list {
		t[a.epoch] = a.n
	}
	return t, err
}

// Pin keeps an epoch at a level until a person removes the record. The name of its file suffices; its contents are for
// people.
type Pin struct {
	Epoch Epoch
	Name  string // given by the user; may be empty
	Auto  bool   // made by the rule of a job, not by a user
	Time  int64  // when it was made, in nanoseconds since 1970 UTC
}

const pinPrefix = "kept-"

// PinName returns the file of the record of an epoch.
func PinName(e Epoch) string { return pinPrefix + strings.TrimPrefix(EpochName(e), epochPrefix) }

// ParsePinName reads the epoch back from the name of a record.
func ParsePinName(name string) (Epoch, bool) {
	digits, ok := strings.CutPrefix(name, pinPrefix)
	if !ok {
		return 0, false
	}
	return ParseEpochName(epochPrefix + digits)
}

func (k *Pin) fields(f Fields) {
	f.Epoch(&k.Epoch)
	f.Str(&k.Name)
	f.Flag(&k.Auto)
	f.Time(&k.Time)
}

// Encode returns the sealed record.
func (k *Pin) Encode() []byte { return seal(kindPin, k.fields, nil) }

// DecodePin opens a record of Pin.Encode.
func DecodePin(file string, b []byte) (*Pin, error) {
	k := &Pin{}
	return k, unseal(file, b, kindPin, k.fields, nil)
}

// Ledger lists the epochs that should be in a rank's directory of a level, and those that the rank knows at other
// levels. Verify tells missing epochs from pruned ones by it; nothing else reads it, and without it nothing is lost.
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

// LedgerEpoch is one epoch of a level, with its files in the directory of the ledger; no files for other levels, and
// none at global.
type LedgerEpoch struct {
	Epoch Epoch
	Files []string
}

func (l *Ledger) fields(f Fields) {
	f.Int(&l.Rank)
	f.Str(&l.Node)
	List(f, &l.Levels, 14, func(v *LedgerLevel) {
		f.Str(&v.Name)
		f.Int(&v.Keep)
		f.Int(&v.KeepEvery)
		List(f, &v.Epochs, 12, func(p *LedgerEpoch) {
			f.Epoch(&p.Epoch)
			List(f, &p.Files, 2, f.Str)
		})
	})
}

// Encode returns the sealed record.
func (l *Ledger) Encode() []byte { return seal(kindLedger, l.fields, &l.Run) }

// DecodeLedger opens a record of Ledger.Encode.
func DecodeLedger(file string, b []byte) (*Ledger, error) {
	l := &Ledger{}
	return l, unseal(file, b, kindLedger, l.fields, &l.Run)
}

// At finds a level; nil if the rank did not use it.
func (l *Ledger) At(level string) *LedgerLevel {
	for i := range l.Levels {
		if l.Levels[i].Name == level {
			return &l.Levels[i]
		}
	}
	return nil
}
