package handshake

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

var errClaim = errors.New("claim")

// exchange has a client and a server speak, and returns what each thinks of it.
func exchange(t *testing.T, client, server *Protocol, a, b Key, refuse error) (claim []byte, cerr, serr error) {
	t.Helper()
	l, r := net.Pipe()
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.Close()
		serr = server.Admit(r, func([]byte) Key { return b }, func(c []byte) error { claim = c; return refuse })
	}()
	cerr = client.Greet(l, a, []byte("who"))
	_ = l.Close()
	<-done
	return claim, cerr, serr
}

// TestHandshake checks what both ends learn, in each case.
func TestHandshake(t *testing.T) {
	k, other := NewKey(), NewKey()
	p := Protocol{Magic: "HFTEST\r\n", Version: 3, Claim: 3, Server: []byte("me")}
	changed := func(f func(*Protocol)) *Protocol {
		q := p
		f(&q)
		return &q
	}
	for _, c := range []struct {
		name         string
		server       *Protocol
		key          Key
		refuse       error
		client, hear error // what the client gets, and the server
	}{
		{"welcome", &p, k, nil, nil, nil},
		{"other key", &p, other, nil, ErrKey, ErrKey},
		{"other key, and it would refuse", &p, other, ErrRefused, ErrKey, ErrKey},
		{"another one with the key", changed(func(q *Protocol) { q.Server = []byte("you") }), k, nil, ErrKey, ErrKey},
		{"other protocol", changed(func(q *Protocol) { q.Magic = "HFELSE\r\n" }), k, nil, ErrOther, io.EOF},
		{"full", &p, k, ErrRefused, ErrRefused, ErrRefused},
		{"a claim that cannot be", &p, k, errClaim, ErrOther, errClaim},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim, cerr, serr := exchange(t, &p, c.server, k, c.key, c.refuse)
			if !errors.Is(cerr, c.client) || !errors.Is(serr, c.hear) {
				t.Errorf("got %v at the client and %v at the server, want %v and %v", cerr, serr, c.client, c.hear)
			}
			if serr == nil && string(claim) != "who" {
				t.Errorf("got claim %q", claim)
			}
		})
	}
	newer := changed(func(q *Protocol) { q.Version = 4 })
	_, cerr, serr := exchange(t, &p, newer, k, k, nil)
	for _, err := range []error{cerr, serr} {
		if v, ok := errors.AsType[*VersionError](err); !ok || v.Server != 4 || v.Client != 3 {
			t.Errorf("got %v, want the two versions", err)
		}
	}
}

// TestImpostor checks that neither end believes one that repeats what it has heard, or makes it up.
func TestImpostor(t *testing.T) {
	k := NewKey()
	p := Protocol{Magic: "HFTEST\r\n", Version: 3, Claim: 3}
	accept := func([]byte) error { t.Error("accepted without the key"); return nil }
	heard := &bytes.Buffer{} // the client's record of a good handshake
	l, r := net.Pipe()
	go func() {
		_ = p.Admit(r, func([]byte) Key { return k }, func([]byte) error { return nil })
		_ = r.Close()
	}()
	if err := p.Greet(tee{l, heard}, k, []byte("who")); err != nil {
		t.Fatal(err)
	}
	for _, record := range [][]byte{heard.Bytes(), make([]byte, heard.Len())} {
		l, r := net.Pipe()
		go func() {
			_, _ = io.ReadFull(l, make([]byte, 8+4+nonceBytes))
			_, _ = l.Write(record)
			_, _ = io.Copy(io.Discard, l)
		}()
		if err := p.Admit(r, func([]byte) Key { return k }, accept); err == nil {
			t.Error("a record that is repeated is admitted")
		}
		_ = r.Close()
	}
	a, b := net.Pipe()
	go func() { // a server without the key says welcome
		_, _ = b.Write(append([]byte("HFTEST\r\n\x03\x00\x00\x00"), make([]byte, nonceBytes)...))
		_, _ = io.ReadFull(b, make([]byte, heard.Len()))
		_, _ = b.Write(make([]byte, 1+proofBytes))
	}()
	if err := p.Greet(a, k, []byte("who")); !errors.Is(err, ErrKey) {
		t.Errorf("a server without the key: got %v", err)
	}
}

// tee keeps what is written.
type tee struct {
	io.ReadWriter
	to *bytes.Buffer
}

func (t tee) Write(b []byte) (int, error) {
	t.to.Write(b)
	return t.ReadWriter.Write(b)
}

// FuzzAdmit checks that no bytes are admitted without the key.
func FuzzAdmit(f *testing.F) {
	p := Protocol{Magic: "HFTEST\r\n", Version: 3, Claim: 1}
	f.Add(make([]byte, 4+p.Claim+nonceBytes+proofBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), io.Discard}
		err := p.Admit(c, func(claim []byte) Key { return Key{claim[0]} }, func([]byte) error { return nil })
		if err == nil {
			t.Fatal("admitted without the key")
		}
	})
}
