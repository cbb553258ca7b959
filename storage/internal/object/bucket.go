package object

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Scheme begins the URL of a bucket.
const Scheme = "s3://"

// Bucket is what lies below a prefix of a bucket. Keys are relative to it. Its methods may be called by several
// goroutines; each bounds the time of its request, retries included.
type Bucket struct {
	name   string
	prefix string // ends with a slash, unless it is empty
	err    error  // why the URL names no bucket
	until  context.Context
	client lazyClient
}

// Until makes all requests end with ctx, but those that tidy up (see Tidying), which get tidyTime from then on. It is
// called before the bucket is used.
func (b *Bucket) Until(ctx context.Context) { b.until = ctx }

// New is the bucket and prefix of s3://bucket/prefix. Nothing is asked before it is used; an error of the URL is that
// of every method.
func New(url string) *Bucket {
	b := &Bucket{}
	rest, ok := strings.CutPrefix(url, Scheme)
	name, prefix, _ := strings.Cut(rest, "/")
	prefix = strings.Trim(prefix, "/")
	switch {
	case !ok || name == "" || strings.ContainsAny(name, "?#@: "):
		b.err = &Error{Op: "use", URL: url, Kind: ErrURL, Remedy: "write s3://bucket/prefix; the endpoint is that of " +
			"AWS_ENDPOINT_URL_S3"}
	case strings.Contains(prefix, "//"):
		b.err = &Error{Op: "use", URL: url, Kind: ErrURL, Remedy: "a part of the prefix is empty"}
	}
	if b.name = name; prefix != "" {
		b.prefix = prefix + "/"
	}
	return b
}

// Err says why the URL names no bucket.
func (b *Bucket) Err() error { return b.err }

// URL is that of an object, or of the prefix.
func (b *Bucket) URL(key string) string {
	return strings.TrimSuffix(Scheme+b.name+"/"+b.prefix+key, "/")
}

// Info describes an object.
type Info struct {
	Key      string
	Size     int64
	ETag     string // changes with the contents
	Modified time.Time
	token    string // of the put that made it; only by Head
}

// tokenKey is the metadata that names the put which made an object.
const tokenKey = "holdfast-put"

// Timeout bounds one request with its retries. A variable for tests.
var Timeout = 5 * time.Minute

// tidyTime bounds the requests that tidy up behind one who was told to end: whoever comes next clears away what is
// left.
const tidyTime = 10 * time.Second

type tidyKey struct{}

// Tidying marks requests that undo what the caller has begun: the end of a lock, of a note, of an upload.
func Tidying(ctx context.Context) context.Context { return context.WithValue(ctx, tidyKey{}, true) }

// bounded is ctx for one request: it ends in time, and with what Until was told.
func (b *Bucket) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	if b.until == nil {
		return ctx, cancel
	}
	end := cancel
	if ctx.Value(tidyKey{}) != nil {
		end = func() {
			late := time.AfterFunc(tidyTime, cancel)
			context.AfterFunc(ctx, func() { late.Stop() })
		}
	} else if b.until.Err() != nil {
		cancel()
	}
	stop := context.AfterFunc(b.until, end)
	return ctx, func() { stop(); cancel() }
}

// Put makes an object of a few MiB at most. match is the ETag of the object that it replaces; empty: there must be
// none. Otherwise the error matches ErrChanged, and the object is as it was.
//
// After another error the object may come into being later, as long as match holds.
func (b *Bucket) Put(ctx context.Context, key string, body []byte, match string) (etag string, err error) {
	c, err := b.client.of(b)
	if err != nil {
		return "", err
	}
	once, cancel := b.bounded(ctx)
	defer cancel()
	token := rand.Text()
	in := &s3.PutObjectInput{Bucket: &b.name, Key: b.key(key), Body: bytes.NewReader(body),
		ChecksumCRC32C: checksum(body), ContentLength: aws.Int64(int64(len(body))),
		Metadata: map[string]string{tokenKey: token}}
	in.IfMatch, in.IfNoneMatch = conditions(match)
	out, err := c.PutObject(once, in)
	if err == nil {
		return aws.ToString(out.ETag), nil
	}
	return b.settle(ctx, key, token, match, b.fail("put", key, err))
}

// settle finds out whether a put that failed was done all the same.
func (b *Bucket) settle(ctx context.Context, key, token, match string, err error) (etag string, _ error) {
	if !unsure(err) {
		return "", err
	}
	have, herr := b.Head(ctx, key)
	switch {
	case herr == nil && have.token == token:
		return have.ETag, nil
	case errors.Is(herr, fs.ErrNotExist) && match != "":
		return "", &Error{Op: "put", URL: b.URL(key), Kind: ErrChanged, Err: err} // what was to be replaced is gone
	}
	return "", err
}

func conditions(match string) (ifMatch, ifNoneMatch *string) {
	if match == "" {
		return nil, aws.String("*")
	}
	return &match, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC-32C of p, as the protocol writes it. The store compares it with what it got.
func checksum(p []byte) *string {
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(p, castagnoli))
	return aws.String(base64.StdEncoding.EncodeToString(sum))
}

func (b *Bucket) key(key string) *string { return aws.String(b.prefix + key) }

// Head describes an object.
func (b *Bucket) Head(ctx context.Context, key string) (Info, error) {
	c, err := b.client.of(b)
	if err != nil {
		return Info{}, err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	out, err := c.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: b.key(key)})
	if err != nil {
		return Info{}, b.fail("look for", key, err)
	}
	return Info{Key: key, Size: aws.ToInt64(out.ContentLength), ETag: aws.ToString(out.ETag),
		Modified: aws.ToTime(out.LastModified), token: out.Metadata[tokenKey]}, nil
}

// Get reads a whole object. One that is longer than limit is described and not read.
func (b *Bucket) Get(ctx context.Context, key string, limit int64) ([]byte, Info, error) {
	c, err := b.client.of(b)
	if err != nil {
		return nil, Info{}, err
	}
	once, cancel := b.bounded(ctx)
	defer cancel()
	out, err := c.GetObject(once, &s3.GetObjectInput{Bucket: &b.name, Key: b.key(key)})
	if err != nil {
		return nil, Info{}, b.fail("get", key, err)
	}
	defer out.Body.Close()
	info := Info{Key: key, Size: aws.ToInt64(out.ContentLength), ETag: aws.ToString(out.ETag),
		Modified: aws.ToTime(out.LastModified)}
	if info.Size > limit {
		return nil, info, nil
	}
	p := make([]byte, info.Size)
	n, err := io.ReadFull(out.Body, p)
	if err != nil { // the rest
		_, err = b.ReadAt(ctx, info, p[n:], int64(n))
	}
	return p, info, err
}

// ReadAt reads from an object that Head, or List, has described. It is ErrChanged if the object is another one now.
// What a cut connection has brought is not read again.
func (b *Bucket) ReadAt(ctx context.Context, of Info, p []byte, off int64) (n int, err error) {
	c, err := b.client.of(b)
	if err != nil {
		return 0, err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	end := min(off+int64(len(p)), of.Size)
	for try := 0; off+int64(n) < end; try++ {
		var out *s3.GetObjectOutput
		out, err = c.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: b.key(of.Key), IfMatch: &of.ETag,
			Range: aws.String(fmt.Sprintf("bytes=%d-%d", off+int64(n), end-1))})
		if err != nil {
			return n, b.fail("get", of.Key, err)
		}
		var m int
		m, err = io.ReadFull(out.Body, p[n:end-off])
		out.Body.Close()
		if n += m; err == nil {
			break
		}
		if try >= maxAttempts {
			return n, b.fail("get", of.Key, err)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// List lists the objects whose keys begin with prefix, in the order of their keys. With delimited those that have a
// slash behind the prefix are left out, and dirs has what stands before the slash. most bounds both together; 0: no
// bound.
func (b *Bucket) List(ctx context.Context, prefix string, delimited bool, most int32) (list []Info, dirs []string,
	err error) {
	c, err := b.client.of(b)
	if err != nil {
		return nil, nil, err
	}
	in := &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: b.key(prefix)}
	if delimited {
		in.Delimiter = aws.String("/")
	}
	if most > 0 {
		in.MaxKeys = &most
	}
	var pages pageWalk
	for {
		out, err := b.listPage(ctx, c, in)
		if err != nil {
			return nil, nil, err
		}
		var last string
		for _, o := range out.Contents {
			list = append(list, Info{Key: strings.TrimPrefix(aws.ToString(o.Key), b.prefix), Size: aws.ToInt64(o.Size),
				ETag: aws.ToString(o.ETag), Modified: aws.ToTime(o.LastModified)})
			last = max(last, aws.ToString(o.Key))
		}
		for _, p := range out.CommonPrefixes {
			dirs = append(dirs, strings.TrimSuffix(strings.TrimPrefix(aws.ToString(p.Prefix), b.prefix), "/"))
			last = max(last, aws.ToString(p.Prefix))
		}
		if most > 0 {
			return list, dirs, nil
		}
		if more, err := pages.next(aws.ToBool(out.IsTruncated), aws.ToString(out.NextContinuationToken), last); !more {
			return list, dirs, b.pagesFault("list", prefix, err)
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

// pageWalk takes care that a listing in pages comes to an end, whatever the store answers.
type pageWalk struct{ token, last string }

// next says whether a page is followed by another one, which is at token; last is the last key of the page. A store
// that says so and gives no token, or repeats itself, has lost the rest: part of a list must not be taken for all.
func (w *pageWalk) next(truncated bool, token, last string) (more bool, err error) {
	if !truncated { // some stores give a token all the same, or an empty one
		return false, nil
	}
	if token == "" || token == w.token || last != "" && last <= w.last {
		return false, errPages
	}
	w.token, w.last = token, max(last, w.last)
	return true, nil
}

// pagesFault wraps an error of a pageWalk.
func (b *Bucket) pagesFault(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, URL: b.URL(key), Kind: err, Remedy: remedies[err]}
}

func (b *Bucket) listPage(ctx context.Context, c *s3.Client, in *s3.ListObjectsV2Input) (*s3.ListObjectsV2Output,
	error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	out, err := c.ListObjectsV2(ctx, in)
	return out, b.fail("list", strings.TrimPrefix(*in.Prefix, b.prefix), err)
}

// Delete removes an object if it is the one meant (ErrChanged). One that is gone is no error. Some stores ignore the
// condition.
func (b *Bucket) Delete(ctx context.Context, of Info) error {
	c, err := b.client.of(b)
	if err != nil {
		return err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	_, err = c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: b.key(of.Key), IfMatch: &of.ETag})
	if err = b.fail("delete", of.Key, err); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, ErrChanged) { // some say so of one that is gone
		if _, herr := b.Head(ctx, of.Key); errors.Is(herr, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}

// removeAfter removes what a put has made all the same, after an error that leaves it open.
func (b *Bucket) removeAfter(ctx context.Context, key string, after error) error {
	if !unsure(after) {
		return nil
	}
	ctx = Tidying(context.WithoutCancel(ctx))
	have, err := b.Head(ctx, key)
	if err == nil {
		err = b.Delete(ctx, have)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// RemoveTried removes an object that only the caller makes, and may have made.
func (b *Bucket) RemoveTried(ctx context.Context, key string) error {
	return b.removeAfter(ctx, key, &Error{})
}

// AbortUploads gives up all multipart uploads below a prefix, and frees what they take.
func (b *Bucket) AbortUploads(ctx context.Context, prefix string) error {
	c, err := b.client.of(b)
	if err != nil {
		return err
	}
	in := &s3.ListMultipartUploadsInput{Bucket: &b.name, Prefix: b.key(prefix)}
	for {
		ctx, cancel := b.bounded(ctx)
		out, err := c.ListMultipartUploads(ctx, in)
		err = b.fail("list uploads below", prefix, err)
		if err == nil {
			err = b.abortAll(ctx, c, out.Uploads)
		}
		cancel()
		if err != nil || !aws.ToBool(out.IsTruncated) {
			return err
		}
		if aws.ToString(out.NextKeyMarker) < aws.ToString(in.KeyMarker) || aws.ToString(out.NextKeyMarker) == "" ||
			aws.ToString(out.NextKeyMarker) == aws.ToString(in.KeyMarker) &&
				aws.ToString(out.NextUploadIdMarker) == aws.ToString(in.UploadIdMarker) {
			return b.pagesFault("list uploads below", prefix, errPages)
		}
		in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker
	}
}

func (b *Bucket) abortAll(ctx context.Context, c *s3.Client, list []types.MultipartUpload) error {
	return Each(len(list), func(i int) error {
		_, err := c.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.name, Key: list[i].Key,
			UploadId: list[i].UploadId})
		if err = b.fail("abort upload of", strings.TrimPrefix(aws.ToString(list[i].Key), b.prefix), err); isGone(err) {
			return nil
		}
		return err
	})
}

// Try finds out, by an object of this key, whether the store does what commits need.
func (b *Bucket) Try(ctx context.Context, key string) (err error) {
	none := func(what string) error {
		return &Error{Op: "try conditional puts at", URL: b.URL(key), Kind: ErrNoConditions,
			Remedy: what + "; " + remedies[ErrNoConditions]}
	}
	etag, err := b.Put(ctx, key, []byte("1"), "")
	if errors.Is(err, errors.ErrUnsupported) {
		return none("If-None-Match is refused")
	}
	if err != nil {
		return errors.Join(err, b.removeAfter(ctx, key, err))
	}
	defer func() {
		tidy := Tidying(context.WithoutCancel(ctx))
		if derr := b.Delete(tidy, Info{Key: key, ETag: etag}); errors.Is(derr, ErrChanged) { // a put was done late
			err = errors.Join(err, b.removeAfter(ctx, key, derr))
		} else {
			err = errors.Join(err, derr)
		}
	}()
	if again, err := b.Put(ctx, key, []byte("2"), ""); err == nil {
		etag = again
		return none("If-None-Match is ignored")
	} else if !errors.Is(err, ErrChanged) {
		return err
	}
	next, err := b.Put(ctx, key, []byte("3"), etag)
	if err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			return none("If-Match is refused")
		}
		return err
	}
	stale := etag
	if etag = next; stale == next {
		return none("the ETag does not change with the contents")
	}
	if again, err := b.Put(ctx, key, []byte("4"), stale); err == nil {
		etag = again
		return none("If-Match is ignored")
	} else if !errors.Is(err, ErrChanged) {
		return err
	}
	return nil
}
