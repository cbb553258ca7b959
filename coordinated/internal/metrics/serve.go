package metrics

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

const (
	atOnce       = 16 // connections
	requestTime  = 10 * time.Second
	requestBytes = 16 << 10
	replyTime    = 30 * time.Second
)

// serve answers GET /metrics, one request for each connection. net/http would more than double the size of a small
// program.
func (s *Set) serve(ctx context.Context) error {
	host, port, err := net.SplitHostPort(s.opt.Listen)
	if err != nil {
		return fmt.Errorf("metrics: address %q: %w; use PORT as in \":9469\", or HOST:PORT", s.opt.Listen, err)
	}
	host = cmp.Or(host, "127.0.0.1")
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	s.addr = l.Addr()
	context.AfterFunc(ctx, func() { l.Close() })
	s.wg.Go(func() { s.accept(ctx, l) })
	return nil
}

func (s *Set) accept(ctx context.Context, l net.Listener) {
	free := make(chan struct{}, atOnce)
	for ctx.Err() == nil {
		c, err := l.Accept()
		if err != nil {
			if sleep.For(ctx, time.Second) == nil { // such as too many open files
				s.opt.Logger.Warn("holdfast: metrics", "error", err)
			}
			continue
		}
		free <- struct{}{}
		s.wg.Go(func() {
			defer func() { <-free }()
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			s.answer(c)
		})
	}
}

// answer answers one request. One that is broken or late gets no answer.
func (s *Set) answer(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(requestTime))
	r := bufio.NewReader(io.LimitReader(c, requestBytes))
	request, err := r.ReadString('\n')
	for line := request; err == nil && strings.TrimRight(line, "\r\n") != ""; {
		line, err = r.ReadString('\n')
	}
	if err != nil {
		return
	}
	method, target, _ := strings.Cut(request, " ")
	path, _, _ := strings.Cut(target, " ")
	path, _, _ = strings.Cut(path, "?")
	status, body := "200 OK", []byte(nil)
	switch {
	case path != "/metrics":
		status = "404 Not Found"
	case method != "GET" && method != "HEAD":
		status = "405 Method Not Allowed"
	default:
		body = s.text()
	}
	head := fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n", status, len(body))
	if method == "HEAD" {
		body = nil
	}
	_ = c.SetWriteDeadline(time.Now().Add(replyTime))
	_, _ = c.Write(append([]byte(head), body...)) // a reader that is gone misses nothing
}
