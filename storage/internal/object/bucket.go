package object

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"time"
)

// Scheme begins the URL of a bucket.
const Scheme = "s3://"

// Variables for tests.
var (
	// Timeout bounds one request with its retries.
	Timeout = 5 * time.Minute
	// MaxBackoff bounds the time between two attempts, and ReplyTimeout that until a reply begins once a request is
	// sent.
	MaxBackoff   = 10 * time.Second
	ReplyTimeout = 30 * time.Second
	// PartBytes is how long a part of an upload is, if so many are enough.
	PartBytes = 8 << 20
)

// Bucket is the part of a bucket below a prefix. Keys are relative to it. Its methods may be called by several
// goroutines; each bounds the time of its request, retries included. Errors are *Error.
type Bucket interface {
	// Until makes all requests end with ctx, but those that tidy up (see Tidying), which get a few seconds from then
	// on. It is called before the bucket is used.
	Until(ctx context.Context)
	// URL is that of an object, or of the prefix.
	URL(key string) string
	// Put makes an object of a few MiB at most. match is the ETag of the object that it replaces; empty: there must be
	// none. Otherwise the error matches ErrChanged, and the object is as it was.
	//
	// After another error the object may come into being later, as long as match holds.
	Put(ctx context.Context, key string, body []byte, match string) (etag string, err error)
	// Head describes an object.
	Head(ctx context.Context, key string) (Info, error)
	// Get reads a whole object. One that is longer than limit is described and not read.
	Get(ctx context.Context, key string, limit int64) ([]byte, Info, error)
	// ReadAt reads from an object that Head, or List, has described. It is ErrChanged if the object is another one now.
	ReadAt(ctx context.Context, of Info, p []byte, off int64) (n int, err error)
	// List lists the objects whose keys begin with prefix, in the order of their keys. With delimited those that have a
	// slash behind the prefix are left out, and dirs has the names before the slash. most bounds both together; 0: no
	// bound.
	List(ctx context.Context, prefix string, delimited bool, most int32) (list []Info, dirs []string, err error)
	// Delete removes an object if it is the one meant (ErrChanged). One that is gone is no error. Some stores ignore
	// the condition.
	Delete(ctx context.Context, of Info) error
	// RemoveTried removes an object that only the caller makes, and may have made.
	RemoveTried(ctx context.Context, key string) error
	// NewUpload begins to make an object of at most most bytes; 0: not known. Requests end with ctx.
	NewUpload(ctx context.Context, key string, most int64) Upload
	// AbortUploads gives up all multipart uploads below a prefix, and frees their storage.
	AbortUploads(ctx context.Context, prefix string) error
	// Try finds out, by an object of this key, whether the store can do the operations that commits need.
	Try(ctx context.Context, key string) error
}

// Upload makes one large object out of bytes in order, several parts at once. It belongs to one goroutine. Done or
// Abort ends it.
type Upload interface {
	// Bind makes further requests end with ctx.
	Bind(ctx context.Context)
	// Write appends p, which the caller may reuse.
	Write(p []byte) (n int, err error)
	// Bytes is how many were written.
	Bytes() int64
	// Done makes the object, in place of the one with the ETag match; without a match there must be none. See
	// Bucket.Put for the errors; after ErrChanged it may be called again with another match.
	Done(match string) error
	// Abort gives the upload up. It does nothing after Done.
	Abort() error
}

// Info describes an object.
type Info struct {
	Key      string
	Size     int64
	ETag     string // changes with the contents
	Modified time.Time
}

// open reaches a bucket; nil: the program does not import the package. prefix ends with a slash, unless it is empty.
var open func(name, prefix string) Bucket

// Register is called by the init of the package that reaches buckets.
func Register(f func(name, prefix string) Bucket) { open = f }

// New returns the bucket and prefix of s3://bucket/prefix. Nothing is asked before it is used.
func New(url string) (Bucket, error) {
	name, prefix, err := parse(url)
	if err != nil {
		return nil, err
	}
	if open == nil {
		return nil, &Error{Op: "use", URL: url, Kind: ErrNoImport,
			Remedy: `add import _ "github.com/holdfast-hpc/holdfast/storage/s3" to the program`}
	}
	return open(name, prefix), nil
}

func parse(url string) (name, prefix string, err error) {
	rest, ok := strings.CutPrefix(url, Scheme)
	name, prefix, _ = strings.Cut(rest, "/")
	prefix = strings.Trim(prefix, "/")
	switch {
	case !ok || name == "" || strings.ContainsAny(name, "?#@: "):
		return "", "", &Error{Op: "use", URL: url, Kind: ErrURL,
			Remedy: "write s3://bucket/prefix; the endpoint is that of AWS_ENDPOINT_URL_S3"}
	case strings.Contains(prefix, "//"):
		return "", "", &Error{Op: "use", URL: url, Kind: ErrURL, Remedy: "a part of the prefix is empty"}
	case prefix != "":
		prefix += "/"
	}
	return name, prefix, nil
}

type tidyKey struct{}

// Tidying marks requests that undo operations of the caller: the end of a lock, of a note, of an upload.
func Tidying(ctx context.Context) context.Context { return context.WithValue(ctx, tidyKey{}, true) }

// IsTidying reports whether ctx is of Tidying.
func IsTidying(ctx context.Context) bool { return ctx.Value(tidyKey{}) != nil }

// Tries is how often something is done while other processes change the object.
const Tries = 8

// WhileChanged has do done again as long as another process has changed the object meanwhile.
func WhileChanged(do func() error) (err error) {
	for range Tries {
		if err = do(); !errors.Is(err, ErrChanged) {
			break
		}
	}
	return err
}

// Find describes an object; one that is not there has no ETag, so that a put in its place makes it.
func Find(ctx context.Context, b Bucket, key string) (Info, error) {
	info, err := b.Head(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, nil
	}
	return info, err
}

// AtOnce is how many requests on small things are under way at once.
const AtOnce = 16

// Each does n things, several at once. It returns the first error, when all have ended.
func Each(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	errs, free := make([]error, n), make(chan struct{}, AtOnce)
	for i := range n {
		free <- struct{}{}
		wg.Go(func() { errs[i] = do(i); <-free })
	}
	wg.Wait()
	return cmp.Or(errs...)
}
