package wire

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

var part = driver.Region{Origin: [3]int{1, 2, 3}, Size: [3]int{4, 5, 6}}

// messages has one of each kind, with all fields set.
var messages = []Message{
	&Open{Req: 1, Index: 2, Program: "p", Host: "h", PID: 3, Label: "l"},
	&CreateMem{Req: 1, ID: 2, Mem: driver.Mem{Kind: driver.MemImage, Access: driver.ReadOnly, Bytes: 1 << 40,
		Parent: 4, Offset: 4096,
		Image: driver.ImageDesc{Dims: 3, Width: 4, Height: 5, Depth: 6, Order: 0x10B5, Type: 0x10DE}}},
	&CreateSampler{Req: 1, ID: 2, Desc: driver.SamplerDesc{Normalized: true, Addressing: 0x1130, Filter: 0x1141}},
	&Build{Req: 1, ID: 2, Desc: driver.ProgramDesc{Name: "n", OpenCL: "o", CUDA: "c", PTX: []byte{1}, IL: []byte{2},
		Options: "-x"}},
	&CreateKernel{Req: 1, ID: 2, Program: 3, Name: "k"},
	&CreateQueue{Req: 1, ID: 2, Desc: driver.QueueDesc{OutOfOrder: true, Profiling: true, Lazy: true, Priority: -3}},
	&Release{ID: 300},
	&SetArg{Kernel: 1, Index: 1023, Arg: Arg{Kind: driver.ArgValue, Value: []byte{1, 2}}},
	&SetArg{Kernel: 1, Index: 2, Arg: Arg{Kind: driver.ArgMem, Object: 9}},
	&SetArg{Kernel: 1, Index: 2, Arg: Arg{Kind: driver.ArgLocal, Local: 64}},
	&SetArg{Kernel: 1, Index: 2, Arg: Arg{Kind: driver.ArgNull}},
	&Launch{Queue: 1, Kernel: 2, Event: 3, Grid: driver.Grid{Dims: 2, Offset: [3]int{1, 2}, Global: [3]int{8, 4, 1},
		Local: [3]int{2, 4, 1}}, Wait: []driver.Event{7, 1 << 40}},
	&Launch{Queue: 1, Kernel: 2, Grid: driver.Grid{Dims: 1, Global: [3]int{7, 1, 1}}, Wait: []driver.Event{7}},
	&Transfer{Queue: 1, Mem: 2, Event: 3, Slot: 15, Write: true, Last: true,
		Place: driver.Bytes(1<<40, SlotBytes), Inline: true, Unawaited: true, Wait: []driver.Event{7}},
	&Transfer{Queue: 1, Mem: 2, Event: 3, Place: driver.Place{Form: driver.FormBox, Bytes: 64,
		Size: driver.Box{1, 2, 3}, At: driver.Layout{Off: 4, Row: 5, Slice: 6}}, Wait: []driver.Event{7}},
	&Transfer{Queue: 1, Mem: 2, Event: 3, Place: driver.Place{Form: driver.FormPixels, Bytes: 64, Region: part},
		Wait: []driver.Event{7}},
	&Copy{Queue: 1, Event: 2, Dst: 3, Src: 4, To: driver.Bytes(5, 7), From: driver.Bytes(6, 7),
		Wait: []driver.Event{7}},
	&Copy{Queue: 1, Event: 2, Dst: 3, Src: 4, To: driver.Pixels(part), From: driver.Bytes(6, 0),
		Wait: []driver.Event{7}},
	&Copy{Queue: 1, Event: 2, Dst: 3, Src: 4, To: driver.Bytes(6, 0), From: driver.Pixels(part),
		Wait: []driver.Event{7}},
	&Copy{Queue: 1, Event: 2, Dst: 3, Src: 4, To: driver.Pixels(driver.Region{Origin: [3]int{7, 8, 9},
		Size: part.Size}), From: driver.Pixels(part), Wait: []driver.Event{7}},
	&Copy{Queue: 1, Event: 2, Dst: 3, Src: 4, To: driver.BoxAt(driver.Box{1, 2, 3}, driver.Layout{Off: 1, Row: 2,
		Slice: 3}), From: driver.BoxAt(driver.Box{1, 2, 3}, driver.Layout{Off: 4, Row: 5, Slice: 6}),
		Wait: []driver.Event{7}},
	&Fill{Queue: 1, Mem: 2, Event: 3, Place: driver.Bytes(4, 5), Pattern: []byte{1, 2}, Wait: []driver.Event{7}},
	&Fill{Queue: 1, Mem: 2, Event: 3, Place: driver.Pixels(part), Pattern: make([]byte, 16),
		Wait: []driver.Event{7}},
	&Marker{Queue: 1, Event: 2, Barrier: true, Wait: []driver.Event{7}},
	&Flush{Queue: 1}, &Finish{Req: 1, Queue: 2}, &Ask{Req: 1, What: AskFormats, Object: 3, Index: 4},
	&Ask{Req: 1, What: AskGlobal, Object: 3, Name: "table"},
	&Moved{Token: 1, Err: "e", Steps: "{}"}, &Forget{Event: 1}, &Order{Req: 1, JSON: []byte("{}")},
	&Direct{Queue: 1, Mem: 2, Event: 3, Region: 4, At: 5, Off: 6, Bytes: 1 << 40, Write: true, Wait: []driver.Event{7}},
	&Unshare{Region: 5}, &Beat{}, &Query{Req: 1, Of: driver.QueryArgument, Object: 2, Index: 3, Param: 4},
	&Welcome{Server: "s", Quota: 5,
		Devices: []driver.Info{{Kind: "cuda", Platform: "P", Vendor: "V", Name: "N",
			Version: "1", Type: "gpu", Index: 1, UUID: "u", PCI: "p", Arch: "sm_90", IL: "SPIR-V_1.2", GlobalBytes: 1,
			MaxAllocBytes: 2, LocalBytes: 3,
			SubAlign: 4, MaxGroup: 5, FP64: true, Images: true, Shared: true, OutOfOrder: true, HostMemory: true,
			Lazy:       true,
			MaxImage1D: 6, MaxImage2D: [2]int{7, 8}, MaxImage3D: [3]int{9, 10, 11}, MaxLayers: 12}}},
	&Reply{Req: 1, Body: []byte{1}},
	&Done{Event: 1, Slot: 16, Bytes: SlotBytes, Times: &driver.Times{Queued: 1, Submit: 2, Start: 3, End: 4}},
	&Move{Token: 1, To: "remote=a"}, &Bye{Why: "w"},
}

// TestRoundTrip: what is decoded is what was encoded, and every operation is
// among the messages.
func TestRoundTrip(t *testing.T) {
	seen := map[Op]bool{}
	for _, m := range messages {
		seen[m.op()] = true
		op, body, _, err := ReadFrame(bufio.NewReader(bytes.NewReader(Append(nil, m))), nil)
		if err != nil || op != m.op() {
			t.Fatalf("%T: %v", m, err)
		}
		got := New(op)
		if err := Decode(body, got); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("got %+v, want %+v", got, m)
		}
		for n := range body { // cut short anywhere
			if Decode(body[:n], New(op)) == nil {
				t.Errorf("%T of %d of %d bytes was accepted", m, n, len(body))
			}
		}
	}
	for op := range 256 {
		if (New(Op(op)) != nil) != seen[Op(op)] {
			t.Errorf("operation %d: known %v, tested %v", op, New(Op(op)) != nil, seen[Op(op)])
		}
	}
}

// TestErrors: conditions, types and texts pass the wire.
func TestErrors(t *testing.T) {
	call := &driver.CallError{Call: "clX", Code: -5, Text: "CL_OUT", Kind: driver.ErrOutOfMemory}
	for _, want := range []error{
		errors.New("plain"), driver.ErrUnsupported, call,
		&driver.CommandError{Command: "launch", Err: call},
		&driver.BuildError{Program: "p", Options: "-o", Log: "log", Err: errors.New("why")},
	} {
		var w Writer
		encodeError(&w, want)
		r := &Reader{B: w.B}
		got := decodeError(r)
		if err := r.End(); err != nil || got == nil ||
			!strings.Contains(got.Error(), strings.Split(want.Error(), " for ")[0]) {
			t.Errorf("%v: got %v, %v", want, got, err)
		}
		if reflect.TypeOf(want) != reflect.TypeOf(got) && reflect.TypeOf(got) != reflect.TypeOf(&remoteError{}) {
			t.Errorf("%T became %T", want, got)
		}
		for _, s := range sentinels {
			if s != nil && errors.Is(want, s) != errors.Is(got, s) {
				t.Errorf("%v: matching %v is lost", want, s)
			}
		}
		var c *driver.CallError
		if errors.As(want, &c) && (!errors.As(got, &c) || c.Code != -5 || c.Call != "clX") {
			t.Errorf("%v: the call is lost", want)
		}
	}
	var w Writer
	encodeError(&w, nil)
	if r := (&Reader{B: w.B}); decodeError(r) != nil || r.End() != nil {
		t.Error("no error became one")
	}
}

// FuzzMessages: no bytes make a decoder panic or take memory beyond them, and what
// is accepted encodes and decodes to itself.
func FuzzMessages(f *testing.F) {
	for _, m := range messages {
		f.Add(byte(m.op()), Append(nil, m)[frameHeader:])
	}
	f.Fuzz(func(t *testing.T, op byte, body []byte) {
		m := New(Op(op))
		if m == nil {
			return
		}
		if Decode(body, m) != nil {
			return
		}
		if err := Decode(Append(nil, m)[frameHeader:], New(Op(op))); err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
	})
}

// FuzzFrame: frames from a hostile stream are read or refused.
func FuzzFrame(f *testing.F) {
	f.Add(Append(nil, messages[0]))
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Add([]byte{0, 0, 0, 3, 1, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		in, buf := bufio.NewReader(bytes.NewReader(b)), []byte(nil)
		for {
			_, body, kept, err := ReadFrame(in, buf)
			if err != nil {
				return
			}
			if len(body) > len(b) {
				t.Fatal("a body longer than the stream")
			}
			buf = kept
		}
	})
}

// TestDocument decodes the example of docs/internals/REMOTE.md and looks up version and
// operations.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../docs/internals/REMOTE.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("waits for event 7, `([0-9a-f ]+)`").FindSubmatch(text)
	if found == nil {
		t.Fatal("the example is gone")
	}
	b, err := hex.DecodeString(strings.ReplaceAll(string(found[1]), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	op, body, _, err := ReadFrame(bufio.NewReader(bytes.NewReader(b)), nil)
	if err != nil {
		t.Fatal(err)
	}
	var m Marker
	err = Decode(body, &m)
	want := Marker{Queue: 2, Event: 300, Wait: []driver.Event{7}}
	if err != nil || op != OpMarker || !reflect.DeepEqual(m, want) {
		t.Errorf("got %d %+v, %v, want %+v", op, m, err, want)
	}
	if want := fmt.Sprintf("\nVersion %d. ", Version); !bytes.Contains(text, []byte(want)) {
		t.Errorf("it does not say %q", want)
	}
	document := map[Op]string{}
	for _, row := range regexp.MustCompile(`(?m)^ ?(\d+) ([A-Z]\w+)`).FindAllSubmatch(text, -1) {
		n, _ := strconv.Atoi(string(row[1]))
		document[Op(n)] = string(row[2])
	}
	for op := range Op(255) {
		name := ""
		if m := New(op); m != nil {
			name = reflect.TypeOf(m).Elem().Name()
		}
		if document[op] != name {
			t.Errorf("operation %d is %q, the document says %q", op, name, document[op])
		}
	}
}

// TestFinish: what was added while another goroutine sent is sent when Finish
// returns.
func TestFinish(t *testing.T) {
	near, far := net.Pipe() // a write waits for its reader
	s := NewSender(near, 0)
	first := make(chan error, 1)
	go func() { first <- s.Now(&Beat{}) }()
	var h [1]byte
	if _, err := far.Read(h[:]); err != nil { // the first is being sent
		t.Fatal(err)
	}
	if err := s.Now(&Moved{Token: 1}); err != nil {
		t.Fatal(err)
	}
	settled := make(chan error, 1)
	go func() {
		settled <- s.Finish()
		_ = near.Close()
	}()
	got, _ := io.ReadAll(far)
	want := append(Append(nil, &Beat{}), Append(nil, &Moved{Token: 1})...)
	if !bytes.Equal(append(h[:], got...), want) {
		t.Errorf("got % x, want % x", got, want)
	}
	if err := errors.Join(<-settled, <-first); err != nil {
		t.Error(err)
	}
}

// TestQuiet: silence is counted in looks since something was heard, so that time
// in which the process does not run is none.
func TestQuiet(t *testing.T) {
	var ear ActivityReader
	var q SilenceTimer
	for i, c := range []struct {
		heard bool
		want  time.Duration
	}{{true, 0}, {false, BeatEvery}, {false, 2 * BeatEvery}, {true, 0}, {true, 0}, {false, BeatEvery}} {
		if c.heard {
			ear.NoteActivity()
		}
		if got := q.Look(&ear); got != c.want {
			t.Errorf("look %d: got %v, want %v", i, got, c.want)
		}
	}
}
