package format

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
