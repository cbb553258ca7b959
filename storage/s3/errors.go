package s3

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"syscall"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/holdfast-hpc/holdfast/storage/internal/object"
)

// Further kinds of an *object.Error.
var (
	// errNoBucket marks a bucket that does not exist.
	errNoBucket = errors.New("there is no such bucket")
	// errNoCredentials marks requests that could not be signed.
	errNoCredentials = errors.New("no credentials")
	// errClock marks a clock that differs too much from the store's.
	errClock = errors.New("the clocks of this machine and of the object store differ")
	// errNoConditions marks a store that ignores or refuses the conditions that commits need.
	errNoConditions = errors.New("the object store does not support conditional puts")
	// errPages marks a listing in pages that does not go on where the store says that it does.
	errPages = errors.New("the object store lists the same names again, or says that there are more and not where")
)

// kinds are those of the codes that stores answer with.
var kinds = map[string]error{
	"NoSuchBucket": errNoBucket, "NoSuchKey": fs.ErrNotExist, "NotFound": fs.ErrNotExist,
	"AccessDenied": fs.ErrPermission, "Forbidden": fs.ErrPermission, "InvalidAccessKeyId": fs.ErrPermission,
	"SignatureDoesNotMatch": fs.ErrPermission, "ExpiredToken": fs.ErrPermission, "InvalidToken": fs.ErrPermission,
	"RequestTimeTooSkewed": errClock, "PreconditionFailed": object.ErrChanged,
	"ConditionalRequestConflict": object.ErrChanged, "QuotaExceeded": syscall.EDQUOT,
	"XMinioStorageFull": syscall.ENOSPC, "InsufficientStorage": syscall.ENOSPC, "NotImplemented": errors.ErrUnsupported,
}

var remedies = map[error]string{
	errNoBucket: "create the bucket, or correct its name; Holdfast does not create buckets",
	fs.ErrPermission: "check the credentials and the policy of the bucket: Holdfast needs to list, get, put and " +
		"delete objects below the prefix, and to abort multipart uploads",
	errClock: "synchronise the clock of this node (NTP)",
	errNoCredentials: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, on all nodes; " +
		"~/.aws/credentials works too",
	errNoConditions: "use a store that supports If-None-Match and If-Match on puts, or a directory on a parallel " +
		"file system",
	errPages:       "tell those who run the store; until then use a directory on a parallel file system",
	syscall.EDQUOT: "raise the quota, or keep fewer epochs (HOLDFAST_KEEP)",
	syscall.ENOSPC: "make room in the store, or keep fewer epochs (HOLDFAST_KEEP)",
}

// fail wraps the library's error about a request.
func (b *bucket) fail(op, key string, err error) error {
	if err == nil {
		return nil
	}
	b.client.failed(err)
	return b.wrap(op, key, err)
}

func (b *bucket) wrap(op, key string, err error) error {
	e := &object.Error{Op: op, URL: b.URL(key), Err: err}
	var api smithy.APIError
	var resp *awshttp.ResponseError
	if errors.As(err, &api) {
		e.Code = api.ErrorCode()
	}
	status := 0
	if errors.As(err, &resp) {
		status = resp.HTTPStatusCode()
	}
	text := err.Error()
	switch e.Kind = kinds[e.Code]; {
	case e.Kind != nil:
	case status == http.StatusPreconditionFailed:
		e.Kind = object.ErrChanged
	case status == http.StatusForbidden:
		e.Kind = fs.ErrPermission
	case status == http.StatusNotFound && e.Code != "NoSuchUpload":
		e.Kind = fs.ErrNotExist
	case status == http.StatusInsufficientStorage:
		e.Kind = syscall.ENOSPC
	case strings.Contains(text, "get credentials") || strings.Contains(text, "credential provider"):
		e.Kind = errNoCredentials
	case strings.Contains(text, "region"):
		e.Remedy = "set AWS_REGION"
	case errors.Is(err, context.DeadlineExceeded):
		e.Remedy = "the object store did not answer in time: check AWS_ENDPOINT_URL and the network"
	case status == 0 && !errors.Is(err, context.Canceled):
		e.Remedy = "check that the object store can be reached from this node (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL)"
	}
	e.Remedy = cmp.Or(e.Remedy, remedies[e.Kind])
	return e
}

// unsure reports that a request that failed like this may have been done, or may still be.
func unsure(err error) bool {
	var e *object.Error
	return errors.As(err, &e) && (e.Kind == nil || e.Kind == object.ErrChanged || errors.Is(e.Kind, fs.ErrNotExist))
}
