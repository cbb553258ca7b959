package node

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/node/fake"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
)

// script writes messages one after the other, each with its length before it: what FuzzClient
// sends as datagrams.
func script(list ...wire.Message) (b []byte) {
	for _, m := range list {
		one := fake.Bytes(&m)
		b = append(binary.LittleEndian.AppendUint16(b, uint16(len(one))), one...)
	}
	return b
}

// clientScripts returns what clients say, in order or not.
func clientScripts() [][]byte {
	hello := wire.Message{Type: wire.TypeHello, Size: 1, Flags: wire.HelloElastic, Text: "fuzz"}
	u := wire.Message{Type: wire.TypeProtect, Array: 1, Elem: 11, Count: 100, Text: "u"}
	copied, point := wire.Message{Type: wire.TypeCopied}, wire.Message{Type: wire.TypePoint, Count: 1}
	restore, finalize := wire.Message{Type: wire.TypeRestore}, wire.Message{Type: wire.TypeFinalize}
	save := wire.Message{Type: wire.TypeSave, Version: 3, All: true, Text: "heat"}
	find := wire.Message{Type: wire.TypeFind, Version: -1, All: true, Text: "heat"}
	begin := wire.Message{Type: wire.TypeBegin, Version: 3, All: true, Text: "heat"}
	rows := wire.Message{Type: wire.TypeDeclare, Array: 2, Elem: 11, Kind: wire.KindDivided, Text: "v",
		Dims: []int64{8, 5}, Boxes: []wire.Box{{{Count: 4, Block: 2, Stride: 4}, {Count: 5}},
			{{Start: 2, Count: 2}, {Count: 5}}, {{Start: 6, Count: 2}, {Count: 5}}}}
	more := rows
	more.Flags, more.Boxes = wire.DeclareMore, rows.Boxes[:1]
	step := wire.Message{Type: wire.TypeDeclare, Array: 3, Elem: 4, Kind: wire.KindReplicated, Count: 1, Text: "step"}
	shadows, large := hello, wire.Message{Type: wire.TypeProtect, Array: 4, Elem: 11, Count: 10000, Text: "large"}
	shadows.Flags |= wire.HelloShadows
	later, arrived := wire.Message{Type: wire.TypeCopied, Flags: wire.CopiedLater}, wire.Message{Type: wire.TypeArrived}
	lost := arrived
	lost.Code = 5
	some := wire.Message{Type: wire.TypeSave, Version: 4, Picked: []uint32{1}, Text: "heat"}
	return [][]byte{
		script(hello, rows, step, restore, wire.Message{Type: wire.TypeCheckpoint}, copied, more, rows, point,
			finalize),
		script(hello, u, restore, wire.Message{Type: wire.TypeCheckpoint}, copied, point, finalize),
		script(shadows, large, restore, wire.Message{Type: wire.TypeCheckpoint}, later, save, later, arrived,
			lost, finalize),
		script(shadows, large, restore, wire.Message{Type: wire.TypeCheckpoint}, later, arrived, save, later,
			lost, finalize),
		script(hello, u, save, copied, find, begin, wire.Message{Type: wire.TypeHeld, Text: "u"},
			wire.Message{Type: wire.TypeRecover, All: true}, copied,
			wire.Message{Type: wire.TypeEnd}, some, copied, finalize),
		script(hello, u, wire.Message{Type: wire.TypeUnprotect, Array: 1}, save, finalize),
		script(hello, restore, restore, wire.Message{Type: wire.TypeRecover, Picked: []uint32{7}}),
		script(hello, u, wire.Message{Type: wire.TypeRecover, All: true}),
		script(hello, hello),
		script(wire.Message{Type: wire.TypeHello, Rank: 1, Size: 2, Flags: wire.HelloGathers, Text: "fuzz"},
			wire.Message{Type: wire.TypeExchanged}),
		script(hello, u, wire.Message{Type: wire.TypeSignal, Signal: 12}, wire.Message{Type: wire.TypeWait}),
	}
}

// serveFuzz runs a daemon whose checkpoints give up soon.
func serveFuzz(tb testing.TB) (key string) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	dir := inMemory(tb) // removed after the daemon has ended
	key = "fuzz-" + strconv.Itoa(os.Getpid())
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	done, until := make(chan error, 1), make(chan struct{})
	go func() {
		done <- Run(ctx, Options{Key: key, Logger: quiet, Ready: func() { close(ready) }, Until: until,
			Checkpoints: coordinated.Options{Job: "fuzz", Local: dir, Logger: quiet, Fresh: true,
				WaitTimeout: 50 * time.Millisecond, CutTimeout: 100 * time.Millisecond,
				MaxPool: 16 << 20, CopyWorkers: 1}})
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
	})
	select {
	case <-ready:
	case err := <-done:
		tb.Fatal(err)
	}
	return key
}

// inMemory returns a directory whose files cost no disk, where the system has one.
func inMemory(tb testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "holdfast-fuzz")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) }) // memory comes back with the machine
	return dir
}

// survives has a client talk, and then another one be served.
func survives(t *testing.T, key string, b []byte) {
	t.Helper()
	talk(t, key, b)
	c := dial(t, key)
	c.hello(0, 1)
	if a := c.hear(); a != wire.TypeWelcome {
		t.Errorf("after %x a client hears %d, want WELCOME", b, a)
	}
	_ = c.Close() // the daemon sees it
}

// FuzzClient has a client say anything to a daemon, and answer what it is asked with what comes
// next. The daemon must survive it, and serve the next client.
func FuzzClient(f *testing.F) {
	for _, b := range clientScripts() {
		f.Add(b)
	}
	key := serveFuzz(f)
	f.Fuzz(func(t *testing.T, b []byte) { survives(t, key, b) })
}

var (
	clients    = flag.Int("clients", 20, "how many clients TestAnyClient has say something")
	clientSeed = flag.Uint64("client-seed", 1, "seed of what they say")
)

// TestAnyClient is FuzzClient with messages that are mostly right: some are left out, repeated, in
// another order, or have a byte that is another.
func TestAnyClient(t *testing.T) {
	key, scripts := serveFuzz(t), clientScripts()
	rng := rand.New(rand.NewPCG(*clientSeed, 0))
	t.Logf("seed %d", *clientSeed)
	for range *clients {
		survives(t, key, disturbed(rng, scripts))
	}
}

// TestGoneWhileSaving has clients leave in the middle of a checkpoint. What it is copied to must stay until the
// request is over: the daemon would take the other ranks of the node with it.
func TestGoneWhileSaving(t *testing.T) {
	key := serveFuzz(t)
	save := wire.Message{Type: wire.TypeSave, Version: 3, All: true, Text: "heat"}
	copied := wire.Message{Type: wire.TypeCopied}
	for range 150 {
		c := dial(t, key)
		c.hello(0, 1)
		c.await(wire.TypeDone)
		for i := range 30 { // what is small is copied once more, after COPIED
			u := wire.Message{Type: wire.TypeProtect, Array: uint32(i), Elem: 11, Count: 100, Text: fmt.Sprint("u", i)}
			c.say(fake.Bytes(&u))
			c.await(wire.TypeDone)
		}
		c.say(fake.Bytes(&save))
		c.await(wire.TypeCopy)
		c.say(fake.Bytes(&copied))
		_ = c.Close() // the daemon sees it
	}
}

// await hears until a message of a type comes.
func (c fakeClient) await(want wire.Type) {
	c.t.Helper()
	for {
		switch got := c.hear(); got {
		case want:
			return
		case 0, wire.TypeError:
			c.t.Fatalf("got %d, want %d", got, want)
		}
	}
}

// disturbed makes a script of the messages of others.
func disturbed(rng *rand.Rand, scripts [][]byte) (out []byte) {
	var all [][]byte
	for _, b := range scripts {
		for len(b) >= 2 {
			n := 2 + int(binary.LittleEndian.Uint16(b))
			all = append(all, b[:n])
			b = b[n:]
		}
	}
	out = append(out, scripts[0][:2+int(binary.LittleEndian.Uint16(scripts[0]))]...) // HELLO, or nothing else counts
	for range 1 + rng.IntN(8) {
		one := slices.Clone(all[rng.IntN(len(all))])
		if rng.IntN(4) == 0 && len(one) > 2+wire.HeaderBytes {
			at := 2 + wire.HeaderBytes + rng.IntN(len(one)-2-wire.HeaderBytes)
			one[at] = []byte{0, 1, 0x7f, 0x80, 0xff, one[at] + 1}[rng.IntN(6)]
		}
		out = append(out, one...)
	}
	return out
}

// rawMessage, in a length of a script, leaves the header of the message as it is. Of others talk makes it
// right, all but the type: else what fuzzing changes would hardly ever come further.
const rawMessage = 1 << 15

// moment is how long talk waits for an answer, which not everything has.
const moment = 3 * time.Millisecond

// talk sends the messages of a script, and reads briefly after each.
func talk(t *testing.T, key string, b []byte) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: Address(key), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer := make([]byte, wire.MaxBytes)
	const most = 20 // messages
	for n := 0; len(b) >= 2 && n < most; n++ {
		length := binary.LittleEndian.Uint16(b)
		size := min(int(length&^rawMessage), len(b)-2)
		one := slices.Clone(b[2 : 2+size])
		b = b[2+size:]
		if length&rawMessage == 0 && size >= wire.HeaderBytes {
			fake.Repair(one)
		}
		if size > 0 {
			if _, err := c.Write(one); err != nil {
				return // it is hung up on
			}
		}
		for answered := false; !answered; {
			if err := c.SetReadDeadline(time.Now().Add(moment)); err != nil {
				return
			}
			got, err := c.Read(answer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil || got < wire.HeaderBytes {
				return // as above
			}
			switch wire.Type(binary.LittleEndian.Uint16(answer[6:])) {
			case wire.TypeDone, wire.TypeError, wire.TypeCopy, wire.TypeExchange:
				answered = true
			}
		}
	}
}
