package format

import (
	"bytes"
	"reflect"
	"testing"
)

// TestIdentityInRecords: each record that says whose it is comes back with the identity, and is without one what
// earlier releases have written.
func TestIdentityInRecords(t *testing.T) {
	run := Identity{ID: [16]byte{1, 2}, Began: 3, Before: [16]byte{4}, Adopted: true}
	shards := []ShardInfo{{Rank: 0, Node: "n", Pack: NoPack}}
	for name, c := range map[string]struct {
		owned, plain []byte
		back         func(b []byte) (Identity, error)
	}{
		"marker": {(&Marker{Job: "j", Size: 1, Level: LevelLocal, Run: run}).Encode(),
			(&Marker{Job: "j", Size: 1, Level: LevelLocal}).Encode(),
			func(b []byte) (Identity, error) { m, err := DecodeMarker("f", b); return m.Run, err }},
		"manifest": {(&Manifest{Epoch: 7, Size: 1, Job: "j", Level: LevelLocal, Shards: shards, Run: run}).Encode(),
			(&Manifest{Epoch: 7, Size: 1, Job: "j", Level: LevelLocal, Shards: shards}).Encode(),
			func(b []byte) (Identity, error) {
				m, err := DecodeManifest("f", b)
				if err != nil {
					return Identity{}, err
				}
				return m.Run, err
			}},
		"ledger": {(&Ledger{Rank: 1, Node: "n", Run: run}).Encode(), (&Ledger{Rank: 1, Node: "n"}).Encode(),
			func(b []byte) (Identity, error) { l, err := DecodeLedger("f", b); return l.Run, err }},
		"begun": {(&History{Epoch: 7, Level: LevelLocal, Run: run}).Encode(),
			(&History{Epoch: 7, Level: LevelLocal}).Encode(),
			func(b []byte) (Identity, error) { n, err := DecodeHistory("f", b); return n.Run, err }},
	} {
		if got, err := c.back(c.owned); err != nil || got != run {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, run)
		}
		if got, err := c.back(c.plain); err != nil || !got.IsZero() || c.plain[10] != 1 {
			t.Errorf("%s without an identity: got %+v, %v, version %d", name, got, err, c.plain[10])
		}
		payload := func(b []byte) []byte { return b[RecordHead : len(b)-4] }
		if !bytes.HasPrefix(payload(c.owned), payload(c.plain)) {
			t.Errorf("%s: the fields of version 1 have moved", name)
		}
		zeroed := bytes.Clone(payload(c.owned))
		clear(zeroed[len(payload(c.plain)):][:16])
		if _, err := c.back(sealVersion(RecordKind(c.owned[8]), uint16(c.owned[10]), zeroed)); err == nil {
			t.Errorf("%s: an identity of zeros was accepted", name)
		}
	}
}

// TestManifestOwnedWithLayouts: a manifest may have both.
func TestManifestOwnedWithLayouts(t *testing.T) {
	m := exampleManifest()
	m.Run = Identity{ID: [16]byte{9}, Began: 1}
	back, err := DecodeManifest("f", m.Encode())
	if err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("got %+v, %v, want %+v", back, err, m)
	}
	bare := *m
	bare.Run = Identity{}
	if back.ID() != bare.ID() {
		t.Error("the ID of what a manifest commits depends on the run")
	}
}

// TestOwns: which records count in the directory of a run.
func TestOwns(t *testing.T) {
	a, b, none := Identity{ID: [16]byte{1}}, Identity{ID: [16]byte{2}, Before: [16]byte{1}}, Identity{}
	adopting := Identity{ID: [16]byte{3}, Adopted: true}
	for _, c := range []struct {
		run, of Identity
		want    bool
	}{
		{a, a, true}, {a, b, false}, {b, a, false}, {a, none, false}, {none, a, false}, {none, none, true},
		{adopting, none, true}, {adopting, a, false}, {adopting, adopting, true},
	} {
		if got := c.run.Owns(c.of); got != c.want {
			t.Errorf("%v owns what belongs to %v: got %v", c.run, c.of, got)
		}
	}
	if !b.Replaced(a) || a.Replaced(b) || a.Replaced(none) {
		t.Error("the wrong run was replaced")
	}
	if b.Short() != "02000000" || none.Short() != "" {
		t.Errorf("got %q and %q", b.Short(), none.Short())
	}
}
