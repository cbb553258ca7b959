package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/node/fake"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/test/cheader"
)

// samples are one message of each type.
var samples = []wire.Message{
	{Type: wire.TypeHello, Rank: 2, Size: 4, Flags: wire.HelloGathers | wire.HelloMembarrier | wire.HelloFresh,
		Text: "heat", Supervisor: "10.0.0.1:4711 00ff start=2", Step: "3"},
	{Type: wire.TypeProtect, Array: 7, Elem: 11, Count: 1 << 40, Text: "u"},
	{Type: wire.TypeProtect, Array: 8, Elem: 1, Count: 3, Flags: wire.ProtectAnySize, Text: "log"},
	{Type: wire.TypeProtect, Array: 9, Elem: 11, Count: 9, Item: 3, Flags: wire.ProtectAnySize, Text: "x"},
	{Type: wire.TypeUnprotect, Array: 7},
	{Type: wire.TypeDeclare, Array: 9, Elem: 11, Kind: wire.KindDivided, Flags: wire.DeclareMore,
		Dims: []int64{6, 1 << 40}, Text: "v",
		Boxes: []wire.Box{{{0, 3, 0, 0}, {4, 5, 2, 8}}, {{3, 3, 0, 0}, {0, 1 << 40, 0, 0}}}},
	{Type: wire.TypeDeclare, Array: 10, Elem: 4, Kind: wire.KindReplicated, Count: 1, Text: "step"},
	{Type: wire.TypeSave, Version: 1 << 40, Keep: 3, Picked: []uint32{7, 8}, Text: "heat"},
	{Type: wire.TypeSave, Text: "heat"},
	{Type: wire.TypeSave, All: true, Text: "heat"},
	{Type: wire.TypeFind, Version: -1, All: true, Text: "heat"},
	{Type: wire.TypeBegin, Version: 5, All: true, Text: "heat"},
	{Type: wire.TypeHeld, Text: "u"},
	{Type: wire.TypeRecover, Picked: []uint32{1}},
	{Type: wire.TypeRecover, All: true},
	{Type: wire.TypeEnd},
	{Type: wire.TypeRestore},
	{Type: wire.TypePoint, Count: 12345678901},
	{Type: wire.TypeCheckpoint, Again: true},
	{Type: wire.TypeCheckpoint},
	{Type: wire.TypeWait, Text: "global"},
	{Type: wire.TypeWait, Flags: wire.WaitLook},
	{Type: wire.TypeSignal, Signal: 10},
	{Type: wire.TypeFinalize},
	{Type: wire.TypeCopied, Code: 5},
	{Type: wire.TypeCopied, Flags: wire.CopiedLater},
	{Type: wire.TypeCopied, Code: 2, Array: 7},
	{Type: wire.TypeArrived},
	{Type: wire.TypeArrived, Code: 5},
	{Type: wire.TypeExchanged, Code: -5},
	{Type: wire.TypeMailed, Count: 1 << 33},
	{Type: wire.TypeMailed, Text: "no memory"},
}

// TestRoundTrip: the samples have the bytes of testdata, a line for each, which mean the same when they are read.
func TestRoundTrip(t *testing.T) {
	golden, err := os.ReadFile("testdata/messages.hex")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(golden))
	for i, m := range samples {
		b := fake.Bytes(&m)
		if text := hex.EncodeToString(b); text != lines[i] {
			t.Errorf("%+v is %s, want %s", m, text, lines[i])
		}
		got, err := wire.Decode(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("got %+v, %v, want %+v", got, err, m)
		}
		for n := range b {
			if _, err := wire.Decode(b[:n]); !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("type %d cut to %d bytes: got %v, want %v", m.Type, n, err, wire.ErrMalformed)
			}
		}
		if _, err := wire.Decode(append(b, 0)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("type %d with a byte more: got %v, want %v", m.Type, err, wire.ErrMalformed)
		}
	}
}

func TestRefused(t *testing.T) {
	le := binary.LittleEndian
	divided := wire.Message{Type: wire.TypeDeclare, Elem: 1, Kind: wire.KindDivided, Dims: []int64{20}, Text: "u",
		Boxes: []wire.Box{{{0, 6, 2, 4}}}}
	cases := []struct {
		name string
		m    wire.Message
		edit func(b []byte)
	}{
		{"magic", wire.Message{Type: wire.TypeRestore}, func(b []byte) { b[0]++ }},
		{"version", wire.Message{Type: wire.TypeRestore}, func(b []byte) { b[4]++ }},
		{"type of the daemon", wire.Message{Type: wire.TypeRestore}, func(b []byte) { b[6] = byte(wire.TypeDone) }},
		{"length", wire.Message{Type: wire.TypeRestore}, func(b []byte) { b[8]++ }},
		{"zero", wire.Message{Type: wire.TypeRestore}, func(b []byte) { b[12] = 1 }},
		{"rank is size", wire.Message{Type: wire.TypeHello, Rank: 3, Size: 4}, func(b []byte) { b[16] = 4 }},
		{"negative rank", wire.Message{Type: wire.TypeHello, Size: 4}, func(b []byte) { b[19] = 0x80 }},
		{"too many ranks", wire.Message{Type: wire.TypeHello, Size: 4},
			func(b []byte) { le.PutUint32(b[20:], wire.MostRanks+1) }},
		{"too long", wire.Message{Type: wire.TypeProtect, Elem: 11, Text: "u"},
			func(b []byte) { le.PutUint64(b[24:], wire.MostBytes/8+1) }},
		{"no element", wire.Message{Type: wire.TypeProtect, Elem: 1, Text: "u"}, func(b []byte) { b[20] = 14 }},
		{"count overflows", wire.Message{Type: wire.TypeProtect, Elem: 13, Text: "u"},
			func(b []byte) { le.PutUint64(b[24:], 1<<60) }},
		{"too many arrays", wire.Message{Type: wire.TypeProtect, Elem: 1, Text: "u"}, func(b []byte) { b[18] = 1 }},
		{"an axis of nothing", divided, func(b []byte) { le.PutUint64(b[69:], 0) }},
		{"an axis that overlaps itself", divided, func(b []byte) { le.PutUint64(b[85:], 1) }},
		{"an axis beyond all arrays", divided, func(b []byte) { le.PutUint64(b[85:], wire.MaxElems) }},
		{"more boxes than bytes", divided, func(b []byte) { b[44]++ }},
		{"no dimension", divided, func(b []byte) { b[40] = 0 }},
		{"a kind that is none", divided, func(b []byte) { b[24] = 3 }},
		{"text longer than the rest", wire.Message{Type: wire.TypeWait, Text: "local"}, func(b []byte) { b[20]++ }},
		{"text of 4 GiB", wire.Message{Type: wire.TypeWait, Text: "local"},
			func(b []byte) { le.PutUint32(b[20:], 1<<32-1) }},
		{"name with a slash", wire.Message{Type: wire.TypeSave, Text: "heat"}, func(b []byte) { b[37] = '/' }},
		{"negative version", wire.Message{Type: wire.TypeBegin, All: true, Text: "heat"},
			func(b []byte) { b[23] = 0x80 }},
		{"more arrays than bytes", wire.Message{Type: wire.TypeRecover}, func(b []byte) { b[16] = 1 }},
		{"arrays of 16 GiB", wire.Message{Type: wire.TypeRecover}, func(b []byte) { le.PutUint32(b[16:], 1<<32-2) }},
		{"text with a zero", wire.Message{Type: wire.TypeWait, Text: "local"}, func(b []byte) { b[25] = 0 }},
		{"late and failed", wire.Message{Type: wire.TypeCopied, Flags: wire.CopiedLater}, func(b []byte) { b[16] = 5 }},
		{"a flag of no COPIED", wire.Message{Type: wire.TypeCopied}, func(b []byte) { b[20] = 2 }},
		{"a flag of ARRIVED", wire.Message{Type: wire.TypeArrived}, func(b []byte) { b[20] = 1 }},
		{"no signal", wire.Message{Type: wire.TypeSignal, Signal: 1}, func(b []byte) { b[16] = 0 }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := fake.Bytes(&c.m)
			if _, err := wire.Decode(b); err != nil {
				t.Fatalf("before the edit: %v", err)
			}
			c.edit(b)
			if m, err := wire.Decode(b); !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("got %+v, %v, want %v", m, err, wire.ErrMalformed)
			}
		})
	}
}

// FuzzDecode decodes anything; what is accepted means the same when it is written again.
func FuzzDecode(f *testing.F) {
	for _, m := range samples {
		f.Add(fake.Bytes(&m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := wire.Decode(b)
		if err != nil {
			return
		}
		if again := fake.Bytes(&m); !bytes.Equal(again, b) {
			t.Errorf("%x decodes to %+v, which is %x", b, m, again)
		}
	})
}

// TestHeader compares the numbers with those that C has.
func TestHeader(t *testing.T) {
	cheader.Check(t, "../../../lib/src/protocol.h", "HFP_", ".", "Type", "HeaderBytes", "ItemBytes", "MostItems",
		"CodeLost", "CodeFailed")
	public, err := os.ReadFile("../../../lib/holdfast.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{fmt.Sprintf("HF_E_LOST (%d)", wire.CodeLost),
		fmt.Sprintf("HF_E_FAILED (%d)", wire.CodeFailed)} {
		if !bytes.Contains(public, []byte(w)) {
			t.Errorf("the public header has no %q", w)
		}
	}
}
