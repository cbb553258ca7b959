package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/object"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

// TestListingsEnd: a store that gives a token without need is not asked again, and one that loses its place is an
// error, since part of a listing must not be taken for all of it.
func TestListingsEnd(t *testing.T) {
	const one = "<Contents><Key>some/prefix/a</Key><ETag>e</ETag><Size>1</Size></Contents>"
	const up = "<Upload><Key>some/prefix/a</Key><UploadId>u</UploadId></Upload>"
	for _, c := range []struct {
		name, objects, uploads string
		good                   bool
	}{
		{"an empty token at the end", "<IsTruncated>false</IsTruncated><NextContinuationToken></NextContinuationToken>",
			"<IsTruncated>false</IsTruncated><NextKeyMarker></NextKeyMarker>", true},
		{"a token at the end", "<IsTruncated>false</IsTruncated><NextContinuationToken>t</NextContinuationToken>",
			"<IsTruncated>false</IsTruncated><NextKeyMarker>some/prefix/a</NextKeyMarker>", true},
		{"the same page again", "<IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>",
			"<IsTruncated>true</IsTruncated><NextKeyMarker>some/prefix/a</NextKeyMarker>", false},
		{"the same token again", "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>",
			"<IsTruncated>true</IsTruncated><NextKeyMarker>some/prefix/a</NextKeyMarker>", false},
		{"no token", "<IsTruncated>true</IsTruncated>", "<IsTruncated>true</IsTruncated>", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var n atomic.Int32
			b := openBucket(t, fakes3.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, uploads := r.URL.Query()["uploads"]
				switch n := n.Add(1); {
				case n > 20:
					w.WriteHeader(http.StatusForbidden) // enough
				case r.Method == http.MethodDelete:
					w.WriteHeader(http.StatusNoContent)
				case uploads:
					fmt.Fprint(w, "<ListMultipartUploadsResult>", up, c.uploads, "</ListMultipartUploadsResult>")
				default:
					page := strings.Replace(c.objects, "%d", fmt.Sprint(n), 1)
					fmt.Fprint(w, "<ListBucketResult>", one, page, "</ListBucketResult>")
				}
			})))
			list, _, err := b.List(t.Context(), "", false, 0)
			if c.good && (err != nil || len(list) != 1) || !c.good && !errors.Is(err, errPages) {
				t.Errorf("objects: got %v and %v", list, err)
			}
			n.Store(0)
			err = b.AbortUploads(t.Context(), "")
			if c.good && err != nil || !c.good && !errors.Is(err, errPages) {
				t.Errorf("uploads: got %v", err)
			}
		})
	}
}

// TestUntil: a request that the store does not answer ends with the error given to Until, and those that tidy up are
// still made.
func TestUntil(t *testing.T) {
	store, held, mute := &fakes3.Server{}, make(chan bool, 99), make(chan bool)
	b := openBucket(t, fakes3.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			store.ServeHTTP(w, r)
			return
		}
		held <- true
		select {
		case <-r.Context().Done():
		case <-mute:
		}
	})))
	t.Cleanup(func() { close(mute) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.Until(ctx)
	etag, err := b.Put(context.Background(), "x", []byte("x"), "")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	for _, ask := range []func() error{
		func() error { _, _, err := b.Get(context.Background(), "x", 99); return err },
		func() error { _, _, err := b.List(context.Background(), "", true, 0); return err },
		func() error { return b.AbortUploads(context.Background(), "") },
	} {
		go func() { ended <- ask() }()
		<-held
	}
	cancel()
	for range 3 {
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a request does not end")
		}
	}
	if _, err := b.Put(context.Background(), "y", []byte("y"), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a new request: got %v", err)
	}
	err = b.Delete(object.Tidying(context.Background()), object.Info{Key: "x", ETag: etag})
	if err != nil || len(store.Keys()) != 0 {
		t.Errorf("tidying up: got %v, and there are %v", err, store.Keys())
	}
}
