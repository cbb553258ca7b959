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
	client lazyClient
}

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

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, Timeout)
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
	once, cancel := bounded(ctx)
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
	ctx, cancel := bounded(ctx)
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
	once, cancel := bounded(ctx)
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
	ctx, cancel := bounded(ctx)
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
	for {
		out, err := b.listPage(ctx, c, in)
		if err != nil {
			return nil, nil, err
		}
		for _, o := range out.Contents {
			list = append(list, Info{Key: strings.TrimPrefix(aws.ToString(o.Key), b.prefix), Size: aws.ToInt64(o.Size),
				ETag: aws.ToString(o.ETag), Modified: aws.ToTime(o.LastModified)})
		}
		for _, p := range out.CommonPrefixes {
			dirs = append(dirs, strings.TrimSuffix(strings.TrimPrefix(aws.ToString(p.Prefix), b.prefix), "/"))
		}
		if in.ContinuationToken = out.NextContinuationToken; in.ContinuationToken == nil || most > 0 {
			return list, dirs, nil
		}
	}
}

func (b *Bucket) listPage(ctx context.Context, c *s3.Client, in *s3.ListObjectsV2Input) (*s3.ListObjectsV2Output,
	error) {
	ctx, cancel := bounded(ctx)
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
	ctx, cancel := bounded(ctx)
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

// AbortUploads gives up all multipart uploads below a prefix, and frees what they take.
func (b *Bucket) AbortUploads(ctx context.Context, prefix string) error {
	c, err := b.client.of(b)
	if err != nil {
		return err
	}
	in := &s3.ListMultipartUploadsInput{Bucket: &b.name, Prefix: b.key(prefix)}
	for {
		ctx, cancel := bounded(ctx)
		out, err := c.ListMultipartUploads(ctx, in)
		err = b.fail("list uploads below", prefix, err)
		if err == nil {
			err = b.abortAll(ctx, c, out.Uploads)
		}
		cancel()
		if err != nil || !aws.ToBool(out.IsTruncated) {
			return err
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
		return err
	}
	defer func() { err = errors.Join(err, b.Delete(ctx, Info{Key: key, ETag: etag})) }()
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
