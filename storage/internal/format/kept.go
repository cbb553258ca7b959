package format

import "strings"

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
