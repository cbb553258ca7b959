package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/object"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

func TestMain(m *testing.M) {
	object.MaxBackoff, object.PartBytes = time.Millisecond, 64<<10
	os.Exit(m.Run())
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(b)
	return b
}

// openBucket returns the bucket and prefix of a URL.
func openBucket(t *testing.T, url string) *bucket {
	t.Helper()
	b, err := object.New(url)
	if err != nil {
		t.Fatal(err)
	}
	return b.(*bucket)
}

// put makes an object the long way.
func put(ctx context.Context, b *bucket, key string, body []byte, match string) error {
	u := b.NewUpload(ctx, key, 0)
	_, err := u.Write(body)
	if err == nil {
		err = u.Done(match)
	}
	if err != nil {
		err = errors.Join(err, u.Abort())
	}
	return err
}

// TestRequests makes every request, with each fault at each of them in turn. What is there at the end is what was put,
// and no upload is left.
func TestRequests(t *testing.T) {
	big := randomBytes(2*object.PartBytes + 12345)
	for _, fault := range append([]fakes3.Fault{""}, fakes3.All...) {
		name := string(fault)
		if name == "" {
			name = "no fault"
		}
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				store := &fakes3.Server{Page: 1, MinPart: int64(object.PartBytes)}
				hit := false
				p := &fakes3.Proxy{Store: store, Choose: func(n int, _ *http.Request) fakes3.Fault {
					if n != at {
						return ""
					}
					hit = true
					return fault
				}}
				use(t, openBucket(t, fakes3.Start(t, p)), big)
				p.Settle()
				if k := store.Keys(); len(k) != 1 || k[0] != "some/prefix/x/1" {
					t.Errorf("fault at request %d: %v is there, want x/1", at, k)
				}
				known := fault == "" || fault == fakes3.Drop || fault == fakes3.CutBody || fault == fakes3.Slow
				if n := store.Uploads(); n > 0 && known {
					t.Errorf("fault at request %d: %d uploads are left", at, n)
				}
				if !hit || fault == "" || t.Failed() || testing.Short() && at > 3 {
					return
				}
			}
		})
	}
}

// use makes x/1, reads it, and makes and removes others.
func use(t *testing.T, b *bucket, big []byte) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(put(ctx, b, "x/1", big, ""))
	if err := put(ctx, b, "x/1", big[1:], ""); !errors.Is(err, object.ErrChanged) {
		t.Errorf("a second one: got %v, want ErrChanged", err)
	}
	info, err := b.Head(ctx, "x/1")
	must(err)
	got := make([]byte, len(big)+10)
	n, err := b.ReadAt(ctx, info, got, 0)
	if n != len(big) || err != io.EOF || !bytes.Equal(got[:n], big) {
		t.Errorf("read: got %d bytes and %v", n, err)
	}
	for _, k := range []string{"y", "x/2"} {
		etag, err := b.Put(ctx, k, []byte(k), "")
		must(err)
		_, err = b.Put(ctx, k, []byte("new"), etag)
		must(err)
		if _, err = b.Put(ctx, k, []byte("newer"), etag); !errors.Is(err, object.ErrChanged) {
			t.Errorf("put in place of an old one: got %v, want ErrChanged", err)
		}
	}
	list, dirs, err := b.List(ctx, "", true, 0)
	must(err)
	if len(list) != 1 || len(dirs) != 1 || list[0].Key != "y" || dirs[0] != "x" {
		t.Errorf("got %v and %v, want y and x", list, dirs)
	}
	list, _, err = b.List(ctx, "x/", false, 0)
	must(err)
	if len(list) != 2 {
		t.Errorf("got %v, want two objects", list)
	}
	for _, k := range []string{"y", "x/2"} {
		info, err := b.Head(ctx, k)
		must(err)
		if err := b.Delete(ctx, object.Info{Key: k, ETag: `"another"`}); !errors.Is(err, object.ErrChanged) {
			t.Errorf("delete of another object: got %v, want ErrChanged", err)
		}
		must(b.Delete(ctx, info))
		must(b.Delete(ctx, info))
	}
	u := b.NewUpload(ctx, "z", 0)
	_, err = u.Write(big)
	must(err)
	must(b.AbortUploads(ctx, ""))
	if err := u.Done(""); err == nil {
		t.Error("an upload that another one aborted has ended well")
	}
	must(u.Abort())
}

// TestErrors names what is wrong, and what to do.
func TestErrors(t *testing.T) {
	ok := &fakes3.Server{}
	for name, c := range map[string]struct {
		store http.Handler
		url   string
		do    func(b *bucket) error
		want  error
		text  string
	}{
		"nothing there": {store: ok, do: func(b *bucket) error { _, err := b.Head(t.Context(), "k"); return err },
			want: fs.ErrNotExist, text: "/some/prefix/k"},
		"no bucket": {url: "s3://nowhere/p",
			do:   func(b *bucket) error { _, _, err := b.List(t.Context(), "", true, 0); return err },
			want: errNoBucket, text: "create the bucket"},
		"forbidden": {store: &fakes3.Server{Deny: true},
			do:   func(b *bucket) error { _, err := b.Put(t.Context(), "k", nil, ""); return err },
			want: fs.ErrPermission, text: "policy"},
		"conditions ignored": {store: &fakes3.Server{IgnoreConditions: true},
			do:   func(b *bucket) error { return b.Try(t.Context(), "k") },
			want: errNoConditions, text: "If-None-Match is ignored"},
		"conditions refused": {store: &fakes3.Server{RefuseConditions: true},
			do:   func(b *bucket) error { return b.Try(t.Context(), "k") },
			want: errNoConditions, text: "If-None-Match is refused"},
		"all is well": {store: ok, do: func(b *bucket) error { return b.Try(t.Context(), "k") }},
	} {
		t.Run(name, func(t *testing.T) {
			url := fakes3.Start(t, c.store)
			if c.url != "" {
				url = c.url
			}
			err := c.do(openBucket(t, url))
			if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
}

// TestFirstContact: a store that has never answered is asked once when it could not be reached before, and as often as
// any other from its first answer on, even if it is away later.
func TestFirstContact(t *testing.T) {
	store := httptest.NewServer(&fakes3.Server{})
	address := store.Listener.Addr().String()
	url := fakes3.Start(t, &fakes3.Server{}) // sets the credentials
	t.Setenv("AWS_ENDPOINT_URL_S3", store.URL)
	t.Setenv("AWS_ENDPOINT_URL", store.URL)
	store.Close()
	b := openBucket(t, url)
	want := func(when string, attempts int) {
		t.Helper()
		_, err := b.Head(t.Context(), "k")
		if text := fmt.Sprint(err); attempts > 0 && !strings.Contains(text, "can be reached") {
			t.Errorf("%s: got %v, want that it cannot be reached", when, err)
		}
		if got := b.client.contact.attempts(); attempts > 0 && got != attempts {
			t.Errorf("%s: the next request is made %d times, want %d", when, got, attempts)
		}
	}
	want("away", 1)
	want("still away", 1)
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip("another program has taken the port:", err)
	}
	back := &httptest.Server{Listener: l, Config: &http.Server{Handler: &fakes3.Server{}}}
	back.Start()
	want("there", 0)
	back.Close()
	want("away again", maxAttempts)
}
