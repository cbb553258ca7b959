package format

import (
	"bytes"
	"fmt"
	"testing"
)

func FuzzDecoders(f *testing.F) {
	idx := &Index{Epoch: 1, Rank: 0, Size: 1, ChunkBytes: ChunkBytes,
		Sections: []Section{{Name: "a", Size: 5}},
		Chunks:   []Chunk{{Origin: 1, Off: 4096, Stored: 5, Length: 5}}}
	f.Add(idx.Encode())
	f.Add((&Marker{Job: "j", Size: 2, Level: "local"}).Encode())
	m := Manifest{Epoch: 1, Size: 1, Job: "j", Level: "local", Shards: []ShardInfo{{Pack: NoPack}}}
	f.Add(m.Encode())
	m.Shards[0].Layout = exampleLayout(0)
	f.Add(m.Encode())
	f.Add(append(make([]byte, RecordHead), append(encoded(f, exampleLayout(0)), 0, 0, 0, 0)...))
	f.Add((&Ledger{Rank: 1, Node: "n", Levels: []LedgerLevel{{Name: LevelLocal, Keep: 2, KeepEvery: 10,
		Epochs: []LedgerEpoch{{Epoch: 7, Files: []string{ShardName(1)}}, {Epoch: 8}}}, {Name: LevelGlobal}}}).Encode())
	f.Add((&Pin{Epoch: 7, Name: "steady", Time: 1}).Encode())
	f.Add((&History{Epoch: 7, Level: LevelLocal, Nodes: []string{"n0", "n1"}}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		// Sealed again, so that the fields behind the checksum are reached.
		for _, kind := range []RecordKind{kindMarker, kindShardHeader, KindShardIndex, KindManifest} {
			payload := b
			if len(b) > RecordExtra {
				payload = b[RecordHead : len(b)-4]
			}
			sealed := SealRecord(kind, payload)
			DecodeMarker("f", sealed)
			DecodeHeader("f", sealed)
			if m, err := DecodeManifest("f", sealed); err == nil && !bytes.Equal(m.Encode(), sealed) {
				t.Error("manifest does not encode to itself")
			}
			for _, version := range []uint16{versionLayouts, versionOwnedAll} {
				sealed = sealVersion(KindManifest, version, payload)
				if m, err := DecodeManifest("f", sealed); err == nil {
					if !bytes.Equal(m.Encode(), sealed) {
						t.Errorf("a manifest of version %d does not encode to itself", version)
					}
					m.Check()
				}
			}
			sealed = sealVersion(kindMarker, versionOwned, payload)
			if m, err := DecodeMarker("f", sealed); err == nil && !bytes.Equal(m.Encode(), sealed) {
				t.Error("a job marker with the identity of a run does not encode to itself")
			}
			if l, err := DecodeLayout("f", 0, payload); err == nil {
				if b, err := l.Encode(); err == nil && !bytes.Equal(b, payload) {
					t.Error("layout does not encode to itself")
				}
			}
			sealed = SealRecord(kind, payload)
			if x, err := DecodeIndex("f", sealed, 1<<20); err == nil {
				if y, err := DecodeIndex("f", x.Encode(), 1<<20); err != nil || fmt.Sprint(x) != fmt.Sprint(y) {
					t.Error("index does not encode to itself")
				}
			}
			var i ShardInfo
			i.UnmarshalBinary(payload)
			DecodePackIndex("f", SealRecord(kindPackIndex, payload))
			DecodeRestoreAttempts("f", SealRecord(kindAttempts, payload))
			if l, err := DecodeLock("f", SealRecord(kindRunLock, payload)); err == nil &&
				!bytes.Equal(l.Encode(), SealRecord(kindRunLock, payload)) {
				t.Error("run lock does not encode to itself")
			}
			if l, err := DecodeLedger("f", SealRecord(kindLedger, payload)); err == nil &&
				!bytes.Equal(l.Encode(), SealRecord(kindLedger, payload)) {
				t.Error("ledger does not encode to itself")
			}
			if k, err := DecodePin("f", SealRecord(kindPin, payload)); err == nil &&
				!bytes.Equal(k.Encode(), SealRecord(kindPin, payload)) {
				t.Error("note that an epoch is to stay does not encode to itself")
			}
			if b, err := DecodeHistory("f", SealRecord(kindHistory, payload)); err == nil &&
				!bytes.Equal(b.Encode(), SealRecord(kindHistory, payload)) {
				t.Error("note that the job has begun does not encode to itself")
			}
			ReadFooter("f", bytes.NewReader(b), int64(len(b)))
		}
	})
}
