package s3

import (
	"bytes"
	"context"
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

	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/storage/internal/object"
)

// bucket is an object.Bucket.
type bucket struct {
	name   string
	prefix string // ends with a slash, unless it is empty
	until  context.Context
	client lazyClient
}

func init() { object.Register(newBucket) }

func newBucket(name, prefix string) object.Bucket { return &bucket{name: name, prefix: prefix} }

func (b *bucket) Until(ctx context.Context) { b.until = ctx }

func (b *bucket) URL(key string) string {
	return strings.TrimSuffix(object.Scheme+b.name+"/"+b.prefix+key, "/")
}

// tokenKey is the metadata that names the put which made an object.
const tokenKey = "holdfast-put"

// tidyTime bounds the requests that tidy up after the context of Until has ended: the next start removes the rest.
const tidyTime = 10 * time.Second

// bounded is ctx for one request: it ends in time, and with the context of Until.
func (b *bucket) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, object.Timeout)
	if b.until == nil {
		return ctx, cancel
	}
	end := cancel
	if object.IsTidying(ctx) {
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

func (b *bucket) Put(ctx context.Context, key string, body []byte, match string) (etag string, err error) {
	c, err := b.client.of(b)
	if err != nil {
		return "", err
	}
	once, cancel := b.bounded(ctx)
	defer cancel()
	token := random.Text()
	in := &s3.PutObjectInput{Bucket: &b.name, Key: b.key(key), Body: bytes.NewReader(body),
		ChecksumCRC32C: checksum(body), ContentLength: aws.Int64(int64(len(body))),
		Metadata: map[string]string{tokenKey: token}}
	in.IfMatch, in.IfNoneMatch = conditions(match)
	out, err := c.PutObject(once, in)
	if err == nil {
		return aws.ToString(out.ETag), nil
	}
	return b.resolvePut(ctx, key, token, match, b.fail("put", key, err))
}

// resolvePut finds out whether a put that failed was done all the same.
func (b *bucket) resolvePut(ctx context.Context, key, token, match string, err error) (etag string, _ error) {
	if !unsure(err) {
		return "", err
	}
	have, made, herr := b.head(ctx, key)
	switch {
	case herr == nil && made == token:
		return have.ETag, nil
	case errors.Is(herr, fs.ErrNotExist) && match != "":
		// The object to replace is gone.
		return "", &object.Error{Op: "put", URL: b.URL(key), Kind: object.ErrChanged, Err: err}
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

// checksum returns the CRC-32C of p, as the protocol writes it. The store compares it with the bytes that it got.
func checksum(p []byte) *string {
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(p, castagnoli))
	return aws.String(base64.StdEncoding.EncodeToString(sum))
}

func (b *bucket) key(key string) *string { return aws.String(b.prefix + key) }

func (b *bucket) Head(ctx context.Context, key string) (object.Info, error) {
	info, _, err := b.head(ctx, key)
	return info, err
}

// head also returns the token of the put that made the object.
func (b *bucket) head(ctx context.Context, key string) (info object.Info, token string, err error) {
	c, err := b.client.of(b)
	if err != nil {
		return info, "", err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	out, err := c.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: b.key(key)})
	if err != nil {
		return info, "", b.fail("look for", key, err)
	}
	info = object.Info{Key: key, Size: aws.ToInt64(out.ContentLength), ETag: aws.ToString(out.ETag),
		Modified: aws.ToTime(out.LastModified)}
	return info, out.Metadata[tokenKey], nil
}

func (b *bucket) Get(ctx context.Context, key string, limit int64) ([]byte, object.Info, error) {
	c, err := b.client.of(b)
	if err != nil {
		return nil, object.Info{}, err
	}
	once, cancel := b.bounded(ctx)
	defer cancel()
	out, err := c.GetObject(once, &s3.GetObjectInput{Bucket: &b.name, Key: b.key(key)})
	if err != nil {
		return nil, object.Info{}, b.fail("get", key, err)
	}
	defer out.Body.Close()
	info := object.Info{Key: key, Size: aws.ToInt64(out.ContentLength), ETag: aws.ToString(out.ETag),
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

// ReadAt does not read bytes again that came before a connection was cut.
func (b *bucket) ReadAt(ctx context.Context, of object.Info, p []byte, off int64) (n int, err error) {
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

func (b *bucket) List(ctx context.Context, prefix string, delimited bool, most int32) (list []object.Info,
	dirs []string, err error) {
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
			list = append(list, object.Info{Key: strings.TrimPrefix(aws.ToString(o.Key), b.prefix),
				Size: aws.ToInt64(o.Size), ETag: aws.ToString(o.ETag), Modified: aws.ToTime(o.LastModified)})
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

// next reports whether a page is followed by another one, which is at token; last is the last key of the page. A store
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

func (b *bucket) pagesFault(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &object.Error{Op: op, URL: b.URL(key), Kind: err, Remedy: remedies[err]}
}

func (b *bucket) listPage(ctx context.Context, c *s3.Client, in *s3.ListObjectsV2Input) (*s3.ListObjectsV2Output,
	error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	out, err := c.ListObjectsV2(ctx, in)
	return out, b.fail("list", strings.TrimPrefix(*in.Prefix, b.prefix), err)
}

func (b *bucket) Delete(ctx context.Context, of object.Info) error {
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
	if errors.Is(err, object.ErrChanged) { // some say so of one that is gone
		if _, herr := b.Head(ctx, of.Key); errors.Is(herr, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}

// removeAfter removes an object that a put may have made although it failed.
func (b *bucket) removeAfter(ctx context.Context, key string, after error) error {
	if !unsure(after) {
		return nil
	}
	ctx = object.Tidying(context.WithoutCancel(ctx))
	have, err := b.Head(ctx, key)
	if err == nil {
		err = b.Delete(ctx, have)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (b *bucket) RemoveTried(ctx context.Context, key string) error {
	return b.removeAfter(ctx, key, &object.Error{})
}

func (b *bucket) AbortUploads(ctx context.Context, prefix string) error {
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

func (b *bucket) abortAll(ctx context.Context, c *s3.Client, list []types.MultipartUpload) error {
	return object.Each(len(list), func(i int) error {
		_, err := c.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.name, Key: list[i].Key,
			UploadId: list[i].UploadId})
		err = b.fail("abort upload of", strings.TrimPrefix(aws.ToString(list[i].Key), b.prefix), err)
		if isMissing(err) {
			return nil
		}
		return err
	})
}

func (b *bucket) Try(ctx context.Context, key string) (err error) {
	none := func(what string) error {
		return &object.Error{Op: "try conditional puts at", URL: b.URL(key), Kind: errNoConditions,
			Remedy: what + "; " + remedies[errNoConditions]}
	}
	etag, err := b.Put(ctx, key, []byte("1"), "")
	if errors.Is(err, errors.ErrUnsupported) {
		return none("If-None-Match is refused")
	}
	if err != nil {
		return errors.Join(err, b.removeAfter(ctx, key, err))
	}
	defer func() {
		tidy := object.Tidying(context.WithoutCancel(ctx))
		derr := b.Delete(tidy, object.Info{Key: key, ETag: etag})
		if errors.Is(derr, object.ErrChanged) { // a put was done late
			err = errors.Join(err, b.removeAfter(ctx, key, derr))
		} else {
			err = errors.Join(err, derr)
		}
	}()
	if again, err := b.Put(ctx, key, []byte("2"), ""); err == nil {
		etag = again
		return none("If-None-Match is ignored")
	} else if !errors.Is(err, object.ErrChanged) {
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
	} else if !errors.Is(err, object.ErrChanged) {
		return err
	}
	return nil
}
