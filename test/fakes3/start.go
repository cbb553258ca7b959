package fakes3

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// stores are those of this process; each is a bucket of one endpoint, so that tests may run side by side.
var stores struct {
	mu   sync.Mutex
	at   map[string]http.Handler // guarded by mu; by name of the bucket
	n    int                     // guarded by mu
	once sync.Once
}

// Start serves a store until the test ends, and points this process at it. The result is the URL of a prefix there.
func Start(t testing.TB, h http.Handler) (url string) {
	t.Helper()
	stores.once.Do(func() {
		s := httptest.NewUnstartedServer(http.HandlerFunc(route))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.Start()
		for _, v := range Env(s.URL) {
			name, value, _ := strings.Cut(v, "=")
			os.Setenv(name, value)
		}
	})
	stores.mu.Lock()
	defer stores.mu.Unlock()
	if stores.at == nil {
		stores.at = map[string]http.Handler{}
	}
	stores.n++
	name := fmt.Sprintf("%s-%d", Bucket, stores.n)
	stores.at[name] = h
	t.Cleanup(func() {
		stores.mu.Lock()
		defer stores.mu.Unlock()
		delete(stores.at, name)
	})
	return "s3://" + name + "/some/prefix"
}

// route hands a request to its bucket, each of which thinks that it is the only one.
func route(w http.ResponseWriter, r *http.Request) {
	name, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	stores.mu.Lock()
	h := stores.at[name]
	stores.mu.Unlock()
	if h == nil {
		h = &Server{}
	} else {
		name = Bucket
	}
	r.URL.Path = "/" + name + "/" + key
	h.ServeHTTP(w, r)
}

// Env has the variables by which processes find a store.
func Env(endpoint string) []string {
	none := filepath.Join(os.TempDir(), "holdfast-no-such-file")
	return []string{"AWS_ENDPOINT_URL_S3=" + endpoint, "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret",
		"AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=" + none, "AWS_CA_BUNDLE=",
		"AWS_SHARED_CREDENTIALS_FILE=" + none}
}
