package gpud

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// TestUseKeyMovesNobody: who has the clients' key alone can ask, and moves no
// client, whatever it says.
func TestUseKeyCannotMove(t *testing.T) {
	a, b := serve(t, Options{}), serve(t, Options{})
	c := open(t, a.sel)
	id := a.list()[0].ID
	if _, err := DialAdmin(t.Context(), a.addr, a.sel.KeyFile); !errors.Is(err, wire.ErrKey) ||
		!strings.Contains(err.Error(), "gpud-move.key") {
		t.Errorf("got %v, want ErrKey that names the other key", err)
	}
	asks := must(DialStatus(t.Context(), a.addr, a.sel.KeyFile))(t)
	if st := must(asks.Status(t.Context()))(t); len(st.Clients) != 1 {
		t.Errorf("the status has %d clients, want 1", len(st.Clients))
	}
	_, err := asks.Move(t.Context(), id, "remote="+b.addr)
	if err == nil || !strings.Contains(err.Error(), errMoveKey.Error()) {
		t.Errorf("move: got %v, want the error that names the key", err)
	}
	ok(t, asks.Close())
	// a status connection is not one for orders either, however it is put
	k := must(wire.ReadKey(a.sel.KeyFile))(t)
	conn := must(wire.Dial(t.Context(), a.addr, k, wire.ForStatus))(t)
	for _, text := range []string{`{"do":"move","client":1,"to":"x"}`, `{"Do":"MOVE"}`,
		`{"do":"status","do":"move","client":1,"to":"x"}`} {
		_, err := conn.Write(wire.Append(nil, &wire.Order{Req: 1, JSON: json.RawMessage(text)}))
		ok(t, err)
	}
	ok(t, conn.Close())
	ok(t, c.step())
	ok(t, c.check())
	if st := a.status(); st.Draining || len(st.Clients) != 1 {
		t.Errorf("draining %v, %d clients; want no order obeyed", st.Draining, len(st.Clients))
	}
	admin := must(DialAdmin(t.Context(), a.addr, MoveKeyFile(a.sel.KeyFile)))(t)
	if _, err := admin.Move(t.Context(), id, "fake"); err != nil {
		t.Errorf("with its key: %v", err)
	}
	ok(t, admin.Close())
	ok(t, c.check())
	ok(t, c.d.Close())
}

// TestKeyFiles: keys of others, open to others, or of no regular file are refused;
// a server with one key makes the other one; two equal ones are refused.
func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "gpud.key")
	p := serve(t, Options{KeyFile: key})
	move := filepath.Join(dir, "gpud-move.key")
	for _, f := range []string{key, move} {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", f, info, err)
		}
	}
	one, other := must(os.ReadFile(key))(t), must(os.ReadFile(move))(t)
	if bytes.Equal(one, other) {
		t.Fatal("both keys are the same")
	}
	p.stop()
	// a restart keeps them
	again := serve(t, Options{KeyFile: key, Listen: []string{"unix:" + filepath.Join(dir, "s")}})
	again.stop()
	if !bytes.Equal(other, must(os.ReadFile(move))(t)) {
		t.Error("a restart made another key")
	}
	fresh := func(name string) Options {
		return Options{Listen: []string{"unix:" + filepath.Join(dir, name)}, KeyFile: key, Worker: []string{"/nowhere"}}
	}
	ok(t, os.WriteFile(move, one, 0o600))
	if _, err := New(fresh("equal")); err == nil || !strings.Contains(err.Error(), "same key") {
		t.Errorf("equal keys: got %v", err)
	}
	ok(t, os.Chmod(move, 0o640))
	if _, err := New(fresh("open")); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others can read: got %v", err)
	}
	ok(t, os.Remove(move))
	ok(t, syscall.Mkfifo(move, 0o600))
	if _, err := New(fresh("pipe")); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a pipe: got %v", err)
	}
	ok(t, os.Remove(move))
	if os.Geteuid() == 0 {
		ok(t, os.WriteFile(move, other, 0o600))
		ok(t, os.Chown(move, 12345, 0))
		if _, err := New(fresh("foreign")); err == nil || !strings.Contains(err.Error(), "12345") {
			t.Errorf("a key of another user: got %v", err)
		}
	}
}
