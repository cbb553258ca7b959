package metrics

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSet(t *testing.T, opt Options) *Set {
	t.Helper()
	opt.Job, opt.Node, opt.Rank, opt.Size = "sun/moon", "n1", 4, 8
	opt.Now = func() Now { return Now{Points: 77, BacklogEpochs: 2, BacklogBytes: 500} }
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// lines are what a job with one checkpoint of each outcome shows.
var lines = []string{
	`holdfast_epochs_captured_total{job_name="sun/moon",node="n1",rank="4"} 2`,
	`holdfast_epochs_committed_total{job_name="sun/moon",level="local",node="n1",rank="4"} 1`,
	`holdfast_epochs_failed_total{job_name="sun/moon",node="n1",rank="4"} 1`,
	`holdfast_epochs_given_up_total{job_name="sun/moon",node="n1",rank="4"} 1`,
	`holdfast_captured_bytes_total{job_name="sun/moon",node="n1",rank="4"} 2000`,
	`holdfast_stored_bytes_total{job_name="sun/moon",level="local",node="n1",rank="4"} 900`,
	`holdfast_step_seconds_total{job_name="sun/moon",node="n1",rank="4",step="drain"} 4`,
	`holdfast_blocked_seconds_sum{job_name="sun/moon",node="n1",rank="4"} 20`,
	`holdfast_blocked_seconds_bucket{job_name="sun/moon",node="n1",rank="4",le="10"} 2`,
	`holdfast_last_epoch{job_name="sun/moon",level="local",node="n1",rank="4"} 9`,
	`holdfast_restored_epoch{job_name="sun/moon",node="n1",rank="4"} 8`,
	`holdfast_restore_bytes{job_name="sun/moon",level="memory",node="n1",rank="4"} 3000`,
	`holdfast_points{job_name="sun/moon",node="n1",rank="4"} 77`,
	`holdfast_flush_backlog_epochs{job_name="sun/moon",node="n1",rank="4"} 2`,
	`holdfast_flush_backlog_bytes{job_name="sun/moon",node="n1",rank="4"} 500`,
	`holdfast_ranks{job_name="sun/moon",node="n1",rank="4"} 8`,
}

func fill(s *Set) {
	s.Restored(8, "memory", 3000, time.Second)
	for range 2 {
		s.Captured(1000, time.Second, 2*time.Second, 3*time.Second, 10*time.Second)
	}
	s.Wrote("write", "local", 900, time.Second)
	s.Committed(9, "local", 4*time.Second)
	s.Failed()
	s.GivenUp()
}

func wantLines(t *testing.T, text string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(text, l+"\n") {
			t.Errorf("no %q in\n%s", l, text)
		}
	}
}

// TestHTTP: a port alone is served on the loopback address, and nothing but
// /metrics.
func TestHTTP(t *testing.T) {
	s := newSet(t, Options{Listen: ":0"})
	fill(s)
	if ip := s.addr.(*net.TCPAddr).IP; !ip.IsLoopback() {
		t.Errorf("served on %v, want the loopback address", ip)
	}
	wantLines(t, get(t, s, "/metrics", http.StatusOK))
	get(t, s, "/", http.StatusNotFound)
	for request, want := range map[string]string{
		"HEAD /metrics HTTP/1.1\r\n\r\n":            "HTTP/1.1 200 OK\r\n",
		"GET /metrics?x=1 HTTP/1.0\r\n\r\n":         "HTTP/1.1 200 OK\r\n",
		"POST /metrics HTTP/1.1\r\n\r\n":            "HTTP/1.1 405 Method Not Allowed\r\n",
		"GET /metrics HTTP/1.1\r\nHost: x\r\n":      "", // it is cut off
		"GET /" + strings.Repeat("x", requestBytes): "",
	} {
		c, err := net.Dial("tcp", s.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(c, request)
		if err == nil {
			err = c.(*net.TCPConn).CloseWrite()
		}
		reply, rerr := io.ReadAll(c)
		got, _, _ := strings.Cut(string(reply), "Content-Type")
		if (err != nil || rerr != nil) && want != "" || got != want { // without an answer it may end while we write
			t.Errorf("%.40q: got %q, %v, %v, want %q", request, got, err, rerr, want)
		}
		if strings.HasPrefix(request, "HEAD") && !strings.HasSuffix(string(reply), "\r\n\r\n") {
			t.Errorf("HEAD: got a body: %q", reply)
		}
		c.Close()
	}
}

// TestSilentClients: clients that ask nothing do not hold Close up.
func TestSilentClients(t *testing.T) {
	s := newSet(t, Options{Listen: ":0"})
	for range atOnce + 1 {
		c, err := net.Dial("tcp", s.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	begin := time.Now()
	if err := s.Close(); err != nil || time.Since(begin) > requestTime/2 {
		t.Errorf("Close took %v: %v", time.Since(begin), err)
	}
}

// TestText: users rely on all of it.
func TestText(t *testing.T) {
	want, err := os.ReadFile("testdata/metrics.prom")
	if err != nil {
		t.Fatal(err)
	}
	s := newSet(t, Options{})
	fill(s)
	s.Skipped("global", true)
	s.PutOff()
	s.Captured(12345678901, 1500*time.Microsecond, 0, 2*time.Second, 3*time.Second)
	got := regexp.MustCompile(`(timestamp_seconds{.*}) .*`).ReplaceAllString(string(s.text()), "$1 0")
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := label("x", "a\"\\\nb"), `x="a\"\\\nb"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func get(t *testing.T, s *Set, path string, code int) string {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get("http://" + s.addr.String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != code {
		t.Errorf("GET %s: %v, %v, want %d", path, r.Status, err, code)
	}
	return string(b)
}

// TestFile: the file is there from the start, follows what happens, has nothing
// beside it, and goes at Close.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	s := newSet(t, Options{Dir: dir})
	name := filepath.Join(dir, "holdfast-sun_moon-n1.prom")
	if _, err := os.Stat(name); err != nil {
		t.Fatal(err)
	}
	fill(s)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	text := ""
	for end := time.Now().Add(time.Minute); !strings.Contains(text, lines[3]+"\n") &&
		time.Now().Before(end); <-tick.C {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	wantLines(t, text)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestCannot: what cannot be served or written is an error, and counting goes on.
func TestCannot(t *testing.T) {
	for _, opt := range []Options{{Listen: "nonsense"}, {Listen: "203.0.113.1:1"},
		{Dir: filepath.Join(t.TempDir(), "absent")}} {
		opt.Now = func() Now { return Now{} }
		s, err := Open(opt)
		if err == nil {
			t.Errorf("%+v: no error", opt)
		}
		fill(s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	var none *Set
	fill(none)
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}
