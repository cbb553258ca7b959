package jobtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/object"
	_ "github.com/holdfast-hpc/holdfast/storage/s3"
)

// QuickStore makes requests that fail fail soon, and shards have several parts.
func QuickStore(t *testing.T) {
	backoff, part := object.MaxBackoff, object.PartBytes
	object.MaxBackoff, object.PartBytes = time.Millisecond, 64<<10
	t.Cleanup(func() { object.MaxBackoff, object.PartBytes = backoff, part })
}

// StoreProxy is the way of one run of a job to the store. A run that is killed makes no requests any more.
type StoreProxy struct {
	next     http.Handler
	Requests atomic.Int64
	at       atomic.Int64 // number of the request at which the run is killed; 0: never
	done     atomic.Bool  // that one is done before
	Dead     atomic.Bool
}

// NewStoreProxy kills the run at a request; at 0 never.
func NewStoreProxy(next http.Handler, at int64, done bool) *StoreProxy {
	p := &StoreProxy{next: next}
	p.KillAt(at, done)
	return p
}

// KillAt kills the run at a request, which is done before if done is set.
func (p *StoreProxy) KillAt(at int64, done bool) {
	p.done.Store(done)
	p.at.Store(at)
}

// ServeHTTP passes a request on while the run lives.
func (p *StoreProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := p.Requests.Add(1)
	if at := p.at.Load(); at > 0 && n >= at {
		p.Dead.Store(true)
		if n == at && p.done.Load() {
			b, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(b)))
			p.next.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	if p.Dead.Load() {
		panic(http.ErrAbortHandler)
	}
	p.next.ServeHTTP(w, r)
}
