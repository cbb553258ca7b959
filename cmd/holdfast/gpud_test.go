package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/internal/cli"
)

// server starts a server of fake devices in this process.
func server(t *testing.T, key string) (s *gpud.Server, addr string) {
	t.Helper()
	s, err := gpud.New(gpud.Options{Listen: []string{"unix:" + filepath.Join(t.TempDir(), "s")}, KeyFile: key,
		Name: "node7", InProcess: true,
		Offer: func(i gpustate.Info) bool { return i.Kind == "fake" }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, s.Addrs()[0]
}

func verb(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	if code := Run(t.Context(), args, &out, &errs); code != want {
		t.Errorf("%v: exit code %d, want %d\n%s%s", args, code, want, out.String(), errs.String())
	}
	return out.String() + errs.String()
}

// TestMigrateVerb moves a program by name, number and label, and says what is
// wrong with other words.
func TestMigrateVerb(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	_, a := server(t, key)
	_, b := server(t, key)
	d, err := gpustate.Open(gpustate.Select{Kind: "fake", Remote: a, KeyFile: key, Label: "job 5"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Buffer("x", 1<<20); err != nil {
		t.Fatal(err)
	}
	text := verb(t, cli.Good, "gpud", "--status", a, "--key", key)
	for _, want := range []string{"node7", "plain Go", "1.0 MiB", "job 5"} {
		if !strings.Contains(text, want) {
			t.Errorf("status does not say %q:\n%s", want, text)
		}
	}
	var st gpud.Status
	if err := json.Unmarshal([]byte(verb(t, cli.Good, "gpud", "--status", a, "--key", key, "--json")),
		&st); err != nil || len(st.Clients) != 1 {
		t.Errorf("got %+v, %v", st, err)
	}
	text = verb(t, cli.Good, "migrate", a, "job 5", b+",fake", "--key", key)
	if !strings.Contains(text, "moved to remote="+b) || !strings.Contains(text, "drain") || d.Info().Server != b {
		t.Errorf("the device is %s:\n%s", d.Info(), text)
	}
	var out, errs strings.Builder
	code := Run(t.Context(), []string{"migrate", b, "1", "unix:/nowhere/s", "--key", key}, &out, &errs)
	if code != cli.Bad || out.Len() > 0 || !strings.Contains(errs.String(), "stays") {
		t.Errorf("exit code %d, %q, on standard error %q: want the latter to say that the program stays", code,
			out.String(), errs.String())
	}
	verb(t, cli.NoLook, "migrate", b, "nobody", a, "--key", key)
	verb(t, cli.NoLook, "migrate", "unix:/nowhere/s", "1", a, "--key", key)
	verb(t, cli.NoLook, "gpud", "--status", a, "--key", filepath.Join(t.TempDir(), "none"))
	verb(t, cli.Good, "migrate", b, filepath.Base(os.Args[0]), "local,fake:1", "--key", key)
	if i := d.Info(); i.Server != "" || i.Index != 1 {
		t.Errorf("the device is %s, want one of this machine", i)
	}
}

// TestEvacuateVerb moves all programs of a server away.
func TestEvacuateVerb(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	_, a := server(t, key)
	_, b := server(t, key)
	for range 2 {
		d, err := gpustate.Open(gpustate.Select{Kind: "fake", Remote: a, KeyFile: key})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
	}
	verb(t, cli.NoLook, "gpud", "--evacuate", a, "--key", key) // it has no peers
	text := verb(t, cli.Good, "gpud", "--evacuate", a, "--to", b+",fake", "--key", key)
	if strings.Count(text, "moved to") != 2 {
		t.Errorf("got %q, want two moves", text)
	}
	verb(t, cli.Good, "balance", a, b, "--key", key)
	verb(t, cli.NoLook, "balance", "unix:/nowhere/s", "--key", key)
	// one that can be asked is enough
	if text := verb(t, cli.Good, "balance", "unix:/nowhere/s", a, "--key", key); !strings.Contains(text, "/nowhere/s") {
		t.Errorf("got %q, want it to say which server cannot be asked", text)
	}
}

func TestSizeFlag(t *testing.T) {
	for text, want := range map[string]sizeFlag{"1": 1, "64K": 64000, "1.5MiB": 3 << 19, "8GiB": 8 << 30, "8G": 8e9,
		"2TB": 2e12, "0": -1,
		"": -1, "x": -1, "-1G": -1, "1Gx": -1, "1KM": -1, "1e30G": -1} {
		var got sizeFlag
		if err := got.Set(text); err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

// TestGpudRefuses: what cannot be served is said at once.
func TestGpudRefuses(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	for _, args := range [][]string{
		{"--listen", "nowhere"}, {"--listen", "unix:/nowhere/s"}, {"--quota", "much"},
		{"--device", "remote=a:1"}, {"--device", "no such device"}, {"--listen", "256.0.0.1:0"},
	} {
		verb(t, cli.NoLook, append([]string{"gpud", "--key", key}, args...)...)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	socket := filepath.Join(t.TempDir(), "s")
	verb(t, cli.NoLook, "gpud", "--key", key, "--listen", "unix:"+socket, "--metrics", busy.Addr().String())
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a server that did not start left its socket: %v", err)
	}
}

// TestGpudConfig: the key comes from the file, and a server does not start past settings that are flags today.
func TestGpudConfig(t *testing.T) {
	t.Chdir(t.TempDir())
	key := filepath.Join(t.TempDir(), "key")
	_, addr := server(t, key)
	if err := os.WriteFile("holdfast.yaml", []byte("gpud:\n  key: "+key+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text := verb(t, cli.Good, "gpud", "--status", addr); !strings.Contains(text, "node7") {
		t.Errorf("got %q", text)
	}
	verb(t, cli.Good, "balance", addr)
	verb(t, cli.NoLook, "migrate", addr, "nobody", addr)
	listen := "--listen=unix:" + filepath.Join(t.TempDir(), "s")
	text := verb(t, cli.NoLook, "gpud", listen, "--timeout=1s")
	if !strings.Contains(text, "Timeout is 1s, want at least 3s") {
		t.Errorf("got %q, want it to refuse the timeout", text)
	}
	t.Setenv("HOLDFAST_GPUD_QUOTA", "8GiB")
	text = verb(t, cli.NoLook, "gpud", listen)
	if !strings.Contains(text, "HOLDFAST_GPUD_QUOTA is set, but this setting is gone: use the flag --quota") {
		t.Errorf("got %q, want it to name the variable and the flag", text)
	}
	t.Setenv("HOLDFAST_GPUD_QUOTA", "")
	if err := os.WriteFile("holdfast.yaml", []byte("gpud.key: "+key+"\ngpud.silence: 9s\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text = verb(t, cli.NoLook, "gpud", listen)
	if !strings.Contains(text, "holdfast.yaml has gpud.silence, but this setting is gone: use the flag --timeout") {
		t.Errorf("got %q, want it to name the key and the flag", text)
	}
	verb(t, cli.Good, "balance", addr) // only the server would have heeded it
}
