package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/storage/internal/object"
)

// Stores take at most 10,000 parts of at least 5 MiB but for the last.
const (
	mostParts = 10_000
	// partsAtOnce bounds the requests of one upload, and so its memory: that many parts and the one being filled.
	partsAtOnce = 3
)

// upload is an object.Upload.
type upload struct {
	b     *bucket
	ctx   context.Context
	key   string
	token string
	size  int // of a part

	id    string // of the multipart upload; empty: not begun
	free  chan []byte
	made  int // buffers
	fill  []byte
	bytes int64 // handed in
	next  int32 // number of the next part
	g     errgroup.Group

	mu    sync.Mutex
	parts []types.CompletedPart // guarded by mu; by number
	err   error                 // guarded by mu: of a part
}

func (b *bucket) NewUpload(ctx context.Context, key string, most int64) object.Upload {
	size := max(object.PartBytes, int((most/(mostParts-100)+1<<20-1)&^(1<<20-1)))
	return &upload{b: b, ctx: ctx, key: key, token: random.Text(), size: size, next: 1,
		free: make(chan []byte, partsAtOnce+1)}
}

func (u *upload) Bind(ctx context.Context) { u.ctx = ctx }

func (u *upload) Bytes() int64 { return u.bytes }

func (u *upload) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if len(u.fill) == u.size {
			if err := u.send(); err != nil {
				return n, err
			}
		}
		if err := u.needBuffer(); err != nil {
			return n, err
		}
		m := copy(u.fill[len(u.fill):u.size], p)
		u.fill = u.fill[:len(u.fill)+m]
		p, n, u.bytes = p[m:], n+m, u.bytes+int64(m)
	}
	return n, nil
}

func (u *upload) needBuffer() error {
	if u.fill != nil {
		return nil
	}
	select {
	case u.fill = <-u.free:
		return nil
	default:
	}
	if u.made <= partsAtOnce {
		u.made++
		u.fill = make([]byte, 0, u.size)
		return nil
	}
	select {
	case u.fill = <-u.free:
		return nil
	case <-u.ctx.Done():
		return u.ctx.Err()
	}
}

func (u *upload) begin(c *s3.Client) error {
	if u.id != "" {
		return nil
	}
	ctx, cancel := u.b.bounded(u.ctx)
	defer cancel()
	out, err := c.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &u.b.name, Key: u.b.key(u.key),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c, Metadata: map[string]string{tokenKey: u.token}})
	if err == nil {
		u.id = aws.ToString(out.UploadId)
	}
	return u.b.fail("begin upload of", u.key, err)
}

// send has the full buffer uploaded behind the caller.
func (u *upload) send() error {
	u.mu.Lock()
	err := u.err
	u.mu.Unlock()
	if err != nil {
		return err
	}
	c, err := u.b.client.of(u.b)
	if err != nil {
		return err
	}
	if err := u.begin(c); err != nil {
		return err
	}
	if u.next > mostParts {
		return fmt.Errorf("upload of %s: more than %d parts of %d bytes", u.b.URL(u.key), mostParts, u.size)
	}
	p, number, ctx := u.fill, u.next, u.ctx
	u.fill, u.next = nil, u.next+1
	u.mu.Lock()
	u.parts = append(u.parts, types.CompletedPart{PartNumber: &number, ChecksumCRC32C: checksum(p)})
	u.mu.Unlock()
	u.g.Go(func() error {
		err := u.part(ctx, c, p, number)
		u.mu.Lock()
		u.err = errors.Join(u.err, err)
		u.mu.Unlock()
		u.free <- p[:0]
		return err
	})
	return nil
}

func (u *upload) part(ctx context.Context, c *s3.Client, p []byte, number int32) error {
	ctx, cancel := u.b.bounded(ctx)
	defer cancel()
	out, err := c.UploadPart(ctx, &s3.UploadPartInput{Bucket: &u.b.name, Key: u.b.key(u.key), UploadId: &u.id,
		PartNumber: &number, Body: bytes.NewReader(p), ContentLength: aws.Int64(int64(len(p))),
		ChecksumCRC32C: checksum(p)}, unsigned)
	if err != nil {
		return u.b.fail(fmt.Sprintf("put part %d of", number), u.key, err)
	}
	u.mu.Lock()
	u.parts[number-1].ETag = out.ETag
	u.mu.Unlock()
	return nil
}

func (u *upload) Done(match string) error {
	if u.id == "" && u.next == 1 {
		_, err := u.b.Put(u.ctx, u.key, u.fill, match)
		return err
	}
	if len(u.fill) > 0 {
		if err := u.send(); err != nil {
			return err
		}
	}
	if err := u.g.Wait(); err != nil {
		return err
	}
	c, err := u.b.client.of(u.b)
	if err != nil {
		return err
	}
	once, cancel := u.b.bounded(u.ctx)
	defer cancel()
	in := &s3.CompleteMultipartUploadInput{Bucket: &u.b.name, Key: u.b.key(u.key), UploadId: &u.id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts}}
	in.IfMatch, in.IfNoneMatch = conditions(match)
	if _, err = c.CompleteMultipartUpload(once, in); err != nil {
		_, err = u.b.resolvePut(u.ctx, u.key, u.token, match, u.b.fail("end upload of", u.key, err))
	}
	if err == nil {
		u.id = ""
	}
	return err
}

func (u *upload) Abort() error {
	_ = u.g.Wait() // parts under way would come into being again
	if u.id == "" {
		return nil
	}
	c, err := u.b.client.of(u.b)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), min(tidyTime, object.Timeout))
	defer cancel()
	_, err = c.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &u.b.name, Key: u.b.key(u.key),
		UploadId: &u.id})
	if err = u.b.fail("abort upload of", u.key, err); isMissing(err) {
		err = nil
	}
	return err
}

// isMissing reports that an upload, or an object, is not there any more.
func isMissing(err error) bool {
	var e *object.Error
	return errors.As(err, &e) && (e.Code == "NoSuchUpload" || errors.Is(e.Kind, fs.ErrNotExist))
}
