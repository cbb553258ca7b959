package fakes3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
)

// Fault is what becomes of a request.
type Fault string

// Faults, beside the empty one: the request is done and answered.
const (
	Drop      Fault = "the request is lost"
	Lose      Fault = "it is done and the reply is lost"
	CutReply  Fault = "it is done and the reply is cut off"
	CutBody   Fault = "the connection breaks in the middle of the request"
	Late      Fault = "the connection breaks, and it is done later"
	Twice     Fault = "it is done, and once more later"
	Slow      Fault = "the store asks for patience"
	DoneError Fault = "it is done, and the store says that it failed"
)

// All lists the faults.
var All = []Fault{Drop, Lose, CutReply, CutBody, Late, Twice, Slow, DoneError}

// Proxy stands between clients and a store.
type Proxy struct {
	Store http.Handler
	// Choose is asked of each request, in the order in which they come; nil: no faults.
	Choose func(n int, r *http.Request) Fault
	// Wait is how many requests later a late one is done.
	Wait func() int

	mu     sync.Mutex
	n      int           // guarded by mu: requests so far
	late   []lateRequest // guarded by mu
	counts map[Fault]int // guarded by mu
}

type lateRequest struct {
	due  int
	r    *http.Request
	body []byte
}

// Random chooses faults for a share of the requests, by random numbers of its own.
func Random(seed uint64, share float64) (choose func(int, *http.Request) Fault, wait func() int) {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, 4))
	choose = func(int, *http.Request) Fault {
		mu.Lock()
		defer mu.Unlock()
		if rnd.Float64() >= share {
			return ""
		}
		return All[rnd.IntN(len(All))]
	}
	wait = func() int {
		mu.Lock()
		defer mu.Unlock()
		return 1 + rnd.IntN(1<<rnd.IntN(7))
	}
	return choose, wait
}

// Counts returns how many faults of each kind there were.
func (p *Proxy) Counts() map[Fault]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Settle has all late requests done.
func (p *Proxy) Settle() {
	p.mu.Lock()
	list := p.late
	p.late = nil
	p.mu.Unlock()
	for _, l := range list {
		p.replay(l)
	}
}

func (p *Proxy) replay(l lateRequest) {
	r := l.r.Clone(context.Background())
	r.Body = io.NopCloser(bytes.NewReader(l.body))
	p.Store.ServeHTTP(httptest.NewRecorder(), r)
}

// ServeHTTP has a request done, or not.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault, due := p.next(r)
	for _, l := range due {
		p.replay(l)
	}
	if fault == CutBody {
		_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength/2)
		panic(http.ErrAbortHandler)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || fault == Drop {
		panic(http.ErrAbortHandler)
	}
	if fault == Slow {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, "<Error><Code>SlowDown</Code></Error>")
		return
	}
	if fault == Late || fault == Twice {
		p.keep(r, body)
	}
	if fault == Late {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	rec := httptest.NewRecorder()
	p.Store.ServeHTTP(rec, r)
	p.reply(w, rec, fault)
}

// next counts a request, says what becomes of it, and which late ones are due before it.
func (p *Proxy) next(r *http.Request) (fault Fault, due []lateRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	if p.Choose != nil {
		fault = p.Choose(p.n, r)
	}
	if fault != "" {
		if p.counts == nil {
			p.counts = map[Fault]int{}
		}
		p.counts[fault]++
	}
	p.late = slices.DeleteFunc(p.late, func(l lateRequest) bool {
		if l.due > p.n {
			return false
		}
		due = append(due, l)
		return true
	})
	return fault, due
}

func (p *Proxy) keep(r *http.Request, body []byte) {
	wait := 1
	if p.Wait != nil {
		wait = p.Wait()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = append(p.late, lateRequest{p.n + wait, r.Clone(context.Background()), body})
}

func (p *Proxy) reply(w http.ResponseWriter, rec *httptest.ResponseRecorder, fault Fault) {
	switch {
	case fault == Lose, fault == CutReply && rec.Body.Len() == 0:
		panic(http.ErrAbortHandler)
	case fault == DoneError:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "<Error><Code>InternalError</Code></Error>")
		return
	}
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	b := rec.Body.Bytes()
	if fault == CutReply {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		w.WriteHeader(rec.Code)
		_, _ = w.Write(b[:len(b)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(b)
}
