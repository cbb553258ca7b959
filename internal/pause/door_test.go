package pause

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/child"
)

// TestClose: the program has closed its end of a connection that was closed: an image could not hold one.
func TestClose(t *testing.T) {
	l, err := net.Listen("unix", doorPrefix+child.Name(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var closed atomic.Int64
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			fmt.Fprintln(c, Version)
			_, _ = io.Copy(io.Discard, c)
			closed.Add(1)
			_ = c.Close()
		}
	}()
	for n := range int64(100) {
		g, err := Open(t.Context(), []int{os.Getpid()})
		if err != nil {
			t.Fatal(err)
		}
		g.Close()
		if closed.Load() != n+1 {
			t.Fatal("the program still has the connection")
		}
	}
}
