package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/cheader"
)

// samples are one message of each type.
var samples = []Message{
	{Type: TypeHello, Rank: 2, Size: 4, Flags: HelloGathers | HelloMembarrier | HelloFresh, Text: "heat",
		Supervisor: "10.0.0.1:4711 00ff start=2", Step: "3"},
	{Type: TypeProtect, Array: 7, Elem: 11, Count: 1 << 40, Text: "u"},
	{Type: TypeProtect, Array: 8, Elem: 1, Count: 3, Flags: ProtectAnySize, Text: "log"},
	{Type: TypeProtect, Array: 9, Elem: 11, Count: 9, Item: 3, Flags: ProtectAnySize, Text: "x"},
	{Type: TypeUnprotect, Array: 7},
	{Type: TypeDeclare, Array: 9, Elem: 11, Kind: KindDivided, Flags: DeclareMore, Dims: []int64{6, 1 << 40}, Text: "v",
		Boxes: []Box{{{0, 3, 0, 0}, {4, 5, 2, 8}}, {{3, 3, 0, 0}, {0, 1 << 40, 0, 0}}}},
	{Type: TypeDeclare, Array: 10, Elem: 4, Kind: KindReplicated, Count: 1, Text: "step"},
	{Type: TypeSave, Version: 1 << 40, Keep: 3, Picked: []uint32{7, 8}, Text: "heat"},
	{Type: TypeSave, Text: "heat"},
	{Type: TypeSave, All: true, Text: "heat"},
	{Type: TypeFind, Version: -1, All: true, Text: "heat"},
	{Type: TypeBegin, Version: 5, All: true, Text: "heat"},
	{Type: TypeHeld, Text: "u"},
	{Type: TypeRecover, Picked: []uint32{1}},
	{Type: TypeRecover, All: true},
	{Type: TypeEnd},
	{Type: TypeRestore},
	{Type: TypePoint, Count: 12345678901},
	{Type: TypeCheckpoint, Again: true},
	{Type: TypeCheckpoint},
	{Type: TypeWait, Text: "global"},
	{Type: TypeWait, Flags: WaitLook},
	{Type: TypeSignal, Signal: 10},
	{Type: TypeFinalize},
	{Type: TypeCopied, Code: 5},
	{Type: TypeCopied, Flags: CopiedLater},
	{Type: TypeCopied, Code: 2, Array: 7},
	{Type: TypeArrived},
	{Type: TypeArrived, Code: 5},
	{Type: TypeExchanged, Code: -5},
}

func TestRoundTrip(t *testing.T) {
	for _, m := range samples {
		b := m.Append(nil)
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("got %+v, %v, want %+v", got, err, m)
		}
		for n := range b {
			if _, err := Decode(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("type %d cut to %d bytes: got %v, want %v", m.Type, n, err, ErrMalformed)
			}
		}
		if _, err := Decode(append(b, 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("type %d with a byte more: got %v, want %v", m.Type, err, ErrMalformed)
		}
	}
}

func TestRefused(t *testing.T) {
	le := binary.LittleEndian
	divided := Message{Type: TypeDeclare, Elem: 1, Kind: KindDivided, Dims: []int64{20}, Text: "u",
		Boxes: []Box{{{0, 6, 2, 4}}}}
	cases := []struct {
		name string
		m    Message
		edit func(b []byte)
	}{
		{"magic", Message{Type: TypeRestore}, func(b []byte) { b[0]++ }},
		{"version", Message{Type: TypeRestore}, func(b []byte) { b[4]++ }},
		{"type of the daemon", Message{Type: TypeRestore}, func(b []byte) { b[6] = byte(TypeDone) }},
		{"length", Message{Type: TypeRestore}, func(b []byte) { b[8]++ }},
		{"zero", Message{Type: TypeRestore}, func(b []byte) { b[12] = 1 }},
		{"rank is size", Message{Type: TypeHello, Rank: 3, Size: 4}, func(b []byte) { b[16] = 4 }},
		{"negative rank", Message{Type: TypeHello, Size: 4}, func(b []byte) { b[19] = 0x80 }},
		{"too many ranks", Message{Type: TypeHello, Size: 4}, func(b []byte) { le.PutUint32(b[20:], MostRanks+1) }},
		{"too long", Message{Type: TypeProtect, Elem: 11, Text: "u"},
			func(b []byte) { le.PutUint64(b[24:], MostBytes/8+1) }},
		{"no element", Message{Type: TypeProtect, Elem: 1, Text: "u"}, func(b []byte) { b[20] = 14 }},
		{"count overflows", Message{Type: TypeProtect, Elem: 13, Text: "u"},
			func(b []byte) { le.PutUint64(b[24:], 1<<60) }},
		{"too many arrays", Message{Type: TypeProtect, Elem: 1, Text: "u"}, func(b []byte) { b[18] = 1 }},
		{"an axis of nothing", divided, func(b []byte) { le.PutUint64(b[69:], 0) }},
		{"an axis that overlaps itself", divided, func(b []byte) { le.PutUint64(b[85:], 1) }},
		{"an axis beyond all arrays", divided, func(b []byte) { le.PutUint64(b[85:], MaxElems) }},
		{"more boxes than bytes", divided, func(b []byte) { b[44]++ }},
		{"no dimension", divided, func(b []byte) { b[40] = 0 }},
		{"a kind that is none", divided, func(b []byte) { b[24] = 3 }},
		{"text longer than the rest", Message{Type: TypeWait, Text: "local"}, func(b []byte) { b[20]++ }},
		{"text of 4 GiB", Message{Type: TypeWait, Text: "local"}, func(b []byte) { le.PutUint32(b[20:], 1<<32-1) }},
		{"name with a slash", Message{Type: TypeSave, Text: "heat"}, func(b []byte) { b[37] = '/' }},
		{"negative version", Message{Type: TypeBegin, All: true, Text: "heat"}, func(b []byte) { b[23] = 0x80 }},
		{"more arrays than bytes", Message{Type: TypeRecover}, func(b []byte) { b[16] = 1 }},
		{"arrays of 16 GiB", Message{Type: TypeRecover}, func(b []byte) { le.PutUint32(b[16:], 1<<32-2) }},
		{"text with a zero", Message{Type: TypeWait, Text: "local"}, func(b []byte) { b[25] = 0 }},
		{"late and failed", Message{Type: TypeCopied, Flags: CopiedLater}, func(b []byte) { b[16] = 5 }},
		{"a flag of no COPIED", Message{Type: TypeCopied}, func(b []byte) { b[20] = 2 }},
		{"a flag of ARRIVED", Message{Type: TypeArrived}, func(b []byte) { b[20] = 1 }},
		{"no signal", Message{Type: TypeSignal, Signal: 1}, func(b []byte) { b[16] = 0 }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := c.m.Append(nil)
			if _, err := Decode(b); err != nil {
				t.Fatalf("before the edit: %v", err)
			}
			c.edit(b)
			if m, err := Decode(b); !errors.Is(err, ErrMalformed) {
				t.Errorf("got %+v, %v, want %v", m, err, ErrMalformed)
			}
		})
	}
}

// FuzzDecode decodes anything; what is accepted means the same when it is written again.
func FuzzDecode(f *testing.F) {
	for _, m := range samples {
		f.Add(m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		if again := m.Append(nil); !bytes.Equal(again, b) {
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
	for _, w := range []string{fmt.Sprintf("HF_E_LOST (%d)", CodeLost), fmt.Sprintf("HF_E_FAILED (%d)", CodeFailed)} {
		if !bytes.Contains(public, []byte(w)) {
			t.Errorf("the public header has no %q", w)
		}
	}
}
