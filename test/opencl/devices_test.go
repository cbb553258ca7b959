package opencl

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"testing"
)

// TestDevices: a program whose context has all devices of its platform computes with two of
// them what it does with one, and what it does without the library.
func TestDevices(t *testing.T) {
	l := newLab(t)
	want := l.run(without, "devices")
	l.serve()
	for _, device := range []string{platform, "opencl", ""} {
		if got := l.run(through(device), "devices"); got != want {
			t.Errorf("HOLDFAST_DEVICE=%q: got\n%s\nwant\n%s", device, got, want)
		}
	}
}

// TestDevicesMoved: the two devices of one context are moved, each for itself, between two
// platforms and two servers, while the program stands still and while it uses both in turn. It
// prints what it does without the library.
func TestDevicesMoved(t *testing.T) {
	l := newLab(t)
	const rounds = "100"
	want := l.run(without, "devices", l.file("never stands still", ""), rounds)
	l.serve()
	second := "unix:" + filepath.Join(l.dir, "second.sock")
	l.serve("--listen", second)
	file := filepath.Join(l.dir, "go on")
	p := l.startUntil("half", through("remote="+l.socket()+",opencl"), "devices", file, rounds)
	places := &deviceMover{l: l, servers: []string{l.socket(), second}, refused: map[served]string{}}
	if devices := places.find(); len(devices) != 2 {
		t.Fatalf("the program has %d devices at the servers, want 2", len(devices))
	}
	r := rand.New(rand.NewPCG(*moveSeed, 23))
	for range 4 {
		places.moveOne(r)
	}
	if places.done != 4 {
		t.Fatalf("seed %d: %d of 4 moves of a program that stands still: %v", *moveSeed, places.done, places.refused)
	}
	l.file("go on", "")
	ended := make(chan struct{})
	var got string
	var err error
	go func() {
		defer close(ended)
		got, err = p.rest()
	}()
	for going := true; going; {
		select {
		case <-ended:
			going = false
		default:
			places.moveOne(r)
		}
	}
	t.Logf("seed %d: %d moves, %d of them after the program had gone on", *moveSeed, places.done, places.done-4)
	if got = p.before + got; err != nil || got != want {
		t.Errorf("seed %d: %v, got\n%s\nwant\n%s\n%s", *moveSeed, err, got, want, p.errs.Bytes())
	}
}

// deviceMover moves the devices of a program, which has all of those at the servers.
type deviceMover struct {
	l       *lab
	servers []string
	done    int
	refused map[served]string // what the command said of a device that was not moved
}

// served is a device of a program: its number at a server.
type served struct{ server, number string }

// aProgram is the line of a program in the status of a server.
var aProgram = regexp.MustCompile(`(?m)^(\d+) +(?:devices|builds) +`)

func (m *deviceMover) find() (list []served) {
	m.l.t.Helper()
	for _, s := range m.servers {
		status := m.l.run(nil, "holdfast", "gpud", "--status", s)
		for _, line := range aProgram.FindAllStringSubmatch(status, -1) {
			list = append(list, served{s, line[1]})
		}
	}
	return list
}

// moveOne moves one of the devices to another place. A program that ends meanwhile closes them: they are not moved,
// now or later, and its servers may still list them.
func (m *deviceMover) moveOne(r *rand.Rand) {
	m.l.t.Helper()
	list := m.find()
	if len(list) == 0 {
		return
	}
	one := list[r.IntN(len(list))]
	to := m.servers[r.IntN(len(m.servers))] + "," + []string{platform, another}[r.IntN(2)]
	if out, err := m.l.command(nil, "holdfast", "migrate", one.server, one.number, to).CombinedOutput(); err != nil {
		m.refused[one] = fmt.Sprintf("to %s: %v\n%s", to, err, out)
		return
	}
	m.done++
	if said, ok := m.refused[one]; ok {
		m.l.t.Errorf("device %s of %s was moved, but not before that %s", one.number, one.server, said)
	}
}
