package devices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/test/pocl"
	"github.com/holdfast-hpc/holdfast/test/schema"
	"github.com/spf13/cobra"
)

// Run is holdfast with no other verbs than these.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "holdfast"}
	root.AddCommand(Commands()...)
	return cli.Run(ctx, root, args, stdout, stderr)
}

func TestMain(m *testing.M) {
	pocl.Alone()
	if len(os.Args) == 2 && os.Args[1] == workerVerb {
		if err := gpud.RunWorker(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// server starts a server of fake devices.
func server(t *testing.T, key string) (s *gpud.Server, addr string) {
	t.Helper()
	s, err := gpud.New(gpud.Options{Listen: []string{"unix:" + filepath.Join(t.TempDir(), "s")}, KeyFile: key,
		Worker: []string{"/proc/self/exe", workerVerb},
		Offer:  func(i gpustate.Info) bool { return i.Kind == "fake" }})
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

func outcome(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	if code := Run(t.Context(), args, &out, &errs); code != want {
		t.Errorf("%v: exit code %d, want %d\n%s%s", args, code, want, out.String(), errs.String())
	}
	schema.Output(t, args, out.String())
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
	text := outcome(t, cli.Good, "gpud", "--status", a, "--key", key)
	for _, want := range []string{"server ", "plain Go", "1.0 MiB", "job 5"} {
		if !strings.Contains(text, want) {
			t.Errorf("status does not say %q:\n%s", want, text)
		}
	}
	var st gpud.Status
	if err := json.Unmarshal([]byte(outcome(t, cli.Good, "gpud", "--status", a, "--key", key, "--json")),
		&st); err != nil || len(st.Clients) != 1 {
		t.Errorf("got %+v, %v", st, err)
	}
	text = outcome(t, cli.Good, "migrate", a, "job 5", b+",fake", "--key", key)
	if !strings.Contains(text, "moved to remote="+b) || !strings.Contains(text, "drain") || d.Info().Server != b {
		t.Errorf("the device is %s:\n%s", d.Info(), text)
	}
	var out, errs strings.Builder
	code := Run(t.Context(), []string{"migrate", b, "1", "unix:/nowhere/s", "--key", key}, &out, &errs)
	if code != cli.Bad || out.Len() > 0 || !strings.Contains(errs.String(), "stays") {
		t.Errorf("exit code %d, %q, on standard error %q: want the latter to say that the program stays", code,
			out.String(), errs.String())
	}
	outcome(t, cli.NoLook, "migrate", b, "nobody", a, "--key", key)
	outcome(t, cli.NoLook, "migrate", "unix:/nowhere/s", "1", a, "--key", key)
	outcome(t, cli.NoLook, "gpud", "--status", a, "--key", filepath.Join(t.TempDir(), "none"))
	moved := outcome(t, cli.Good, "migrate", b, filepath.Base(os.Args[0]), "local,fake:1", "--key", key, "--json")
	if !strings.Contains(moved, `"steps":{"From":`) {
		t.Errorf("got %s, want the steps of a move", moved)
	}
	if i := d.Info(); i.Server != "" || i.Index != 1 {
		t.Errorf("the device is %s, want one of this machine", i)
	}
}

// TestMovesAsJSON: balance and migrate write what their schemas describe, of moves that failed, too.
func TestMovesAsJSON(t *testing.T) {
	for _, failure := range []string{"", "it ended"} {
		var out strings.Builder
		say := saying{&out, io.Discard, true}
		if err := say.row(moveRow{Program: 1, From: "a:1", To: "b:1", Why: "idle", Error: failure}); err != nil {
			t.Error(err)
		}
		if err := schema.Check("balance", out.String()); err != nil {
			t.Error(err)
		}
		out.Reset()
		if err := say.moves(gpud.Moved{Client: 1, Err: failure}); (err == nil) != (failure == "") {
			t.Error(err)
		}
		if err := schema.Check("migrate", out.String()); err != nil {
			t.Error(err)
		}
	}
}

// TestMigrateAll moves all programs of a server away, one that is busy at the same time as the others; nothing is
// left to balance then.
func TestMigrateAll(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	_, a := server(t, key)
	_, b := server(t, key)
	var devices []*gpustate.Device
	for range 2 {
		d, err := gpustate.Open(gpustate.Select{Kind: "fake", Remote: a, KeyFile: key})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		devices = append(devices, d)
	}
	busy, free := make(chan struct{}), make(chan struct{})
	var first sync.WaitGroup
	first.Go(func() {
		_ = devices[0].WriteShares(t.Context(), func(*gpustate.ShareWriter) error {
			close(busy)
			<-free
			return nil
		})
	})
	<-busy
	go func() {
		for devices[1].Info().Server != b && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		close(free)
	}()
	moved := outcome(t, cli.Good, "migrate", a, "all", b+",fake", "--key", key)
	first.Wait()
	if strings.Count(moved, "moved to") != 2 {
		t.Errorf("got %q, want two moves", moved)
	}
	outcome(t, cli.Good, "balance", a, b, "--key", key)
	outcome(t, cli.NoLook, "balance", "unix:/nowhere/s", "--key", key)
	// one that can be asked is enough
	text := outcome(t, cli.Good, "balance", "unix:/nowhere/s", a, "--key", key)
	if !strings.Contains(text, "/nowhere/s") {
		t.Errorf("got %q, want it to say which server cannot be asked", text)
	}
}

// TestGpudRefuses: what cannot be served is said at once.
func TestGpudRefuses(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	for _, args := range [][]string{
		{"--listen", "nowhere"}, {"--listen", "unix:/nowhere/s"}, {"--quota", "much"},
		{"--device", "remote=a:1"}, {"--device", "no such device"}, {"--listen", "256.0.0.1:0"},
	} {
		outcome(t, cli.NoLook, append([]string{"gpud", "--key", key}, args...)...)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	socket := filepath.Join(t.TempDir(), "s")
	outcome(t, cli.NoLook, "gpud", "--key", key, "--listen", "unix:"+socket, "--metrics", busy.Addr().String())
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
	if text := outcome(t, cli.Good, "gpud", "--status", addr); !strings.Contains(text, "server ") {
		t.Errorf("got %q", text)
	}
	outcome(t, cli.Good, "balance", addr)
	outcome(t, cli.NoLook, "migrate", addr, "nobody", addr)
	listen := "--listen=unix:" + filepath.Join(t.TempDir(), "s")
	text := outcome(t, cli.NoLook, "gpud", listen, "--timeout=1s")
	if !strings.Contains(text, "Timeout is 1s, want at least 3s") {
		t.Errorf("got %q, want it to refuse the timeout", text)
	}
	t.Setenv("HOLDFAST_GPUD_QUOTA", "8GiB")
	text = outcome(t, cli.NoLook, "gpud", listen)
	if !strings.Contains(text, "HOLDFAST_GPUD_QUOTA is set, but this setting is gone: use the flag --quota") {
		t.Errorf("got %q, want it to name the variable and the flag", text)
	}
	t.Setenv("HOLDFAST_GPUD_QUOTA", "")
	if err := os.WriteFile("holdfast.yaml", []byte("gpud.key: "+key+"\ngpud.silence: 9s\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text = outcome(t, cli.NoLook, "gpud", listen)
	if !strings.Contains(text, "holdfast.yaml has gpud.silence, but this setting is gone: use the flag --timeout") {
		t.Errorf("got %q, want it to name the key and the flag", text)
	}
	outcome(t, cli.Good, "balance", addr) // only the server would have read it
}
