package peer_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage/internal/peer"
)

func serve(t *testing.T, open func(key uint32) (syscall.Conn, error)) *peer.Handover {
	t.Helper()
	s, err := peer.HandOver(open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if n := len(s.Address()); n > peer.MaxAddress {
		t.Fatalf("the address has %d bytes", n)
	}
	return s
}

// TestAskFor writes by the descriptor that was handed over, after the name has gone.
func TestAskFor(t *testing.T) {
	mine, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	s := serve(t, func(key uint32) (syscall.Conn, error) {
		if key != 7 {
			return nil, errors.New("no such file")
		}
		return mine, nil
	})
	f, err := peer.AskFor(t.Context(), s.Address(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(mine.Name()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("abc"), 4); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 3)
	if _, err := mine.ReadAt(got, 4); err != nil || string(got) != "abc" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := peer.AskFor(t.Context(), s.Address(), 8); !errors.Is(err, peer.ErrRefused) {
		t.Errorf("another file: got %v, want ErrRefused", err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := peer.AskFor(t.Context(), s.Address(), 7); err == nil {
		t.Error("a closed server gave a file")
	}
}

// TestHung gives up a question whose answer does not come: by its context, and when the server goes.
func TestHung(t *testing.T) {
	asked, release := make(chan struct{}, 2), make(chan struct{})
	defer close(release)
	s := serve(t, func(uint32) (syscall.Conn, error) {
		asked <- struct{}{}
		<-release
		return nil, errors.New("released")
	})
	why := errors.New("out of time")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-asked; cancel(why) }()
	if _, err := peer.AskFor(ctx, s.Address(), 1); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
	go func() { <-asked; s.Close() }()
	_, err := peer.AskFor(t.Context(), s.Address(), 1)
	if !errors.Is(err, peer.ErrRefused) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want ErrRefused", err)
	}
}
