package gpud

import (
	"container/list"
	"net"
	"sync"
)

// lobby holds the connections that have not proven a key yet. When it is full the
// oldest one of the host that has most there is dropped: strangers keep out
// themselves, not clients.
type lobby struct {
	mu     sync.Mutex // guards what follows
	most   int
	order  *list.List // of *waiting, oldest first
	byHost map[string]int
}

type waiting struct {
	conn net.Conn
	host string
}

func newLobby(most int) *lobby {
	return &lobby{most: most, order: list.New(), byHost: map[string]int{}}
}

// enter takes a connection in; leave is called when it has proven the key, or ended.
// dropped says whether another one had to go.
func (l *lobby) enter(c net.Conn) (leave func(), dropped bool) {
	host := ""
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		host = a.IP.String()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if dropped = l.order.Len() >= l.most; dropped {
		l.drop()
	}
	w := &waiting{c, host}
	e := l.order.PushBack(w)
	l.byHost[host]++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.remove(e)
	}), dropped
}

// drop closes the oldest connection of the host that has most; mu is held.
func (l *lobby) drop() {
	var out *list.Element
	for e := l.order.Front(); e != nil; e = e.Next() {
		if out == nil || l.byHost[e.Value.(*waiting).host] > l.byHost[out.Value.(*waiting).host] {
			out = e
		}
	}
	_ = out.Value.(*waiting).conn.Close() // its handshake ends with an error
	l.remove(out)
}

// remove takes a connection out, once; mu is held.
func (l *lobby) remove(e *list.Element) {
	w := e.Value.(*waiting)
	if w.conn == nil {
		return
	}
	w.conn = nil
	l.order.Remove(e)
	if l.byHost[w.host]--; l.byHost[w.host] == 0 {
		delete(l.byHost, w.host)
	}
}
