package s3

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"github.com/holdfast-hpc/holdfast/storage/internal/object"
)

// maxAttempts is how often a request is made until it is answered.
const maxAttempts = 8

// lazyClient is made when it is first needed.
type lazyClient struct {
	mu      sync.Mutex
	c       *s3.Client // guarded by mu
	contact *contact   // guarded by mu; nil as long as c is
}

// contact records whether a store was ever reached. A request without an answer is repeated up to maxAttempts times,
// which takes most of a minute. If that was in vain and no other request was ever answered, the address is most likely
// wrong: later requests are sent once.
type contact struct{ answered, unreached atomic.Bool }

var contacts sync.Map // by endpoint: *contact

func (k *contact) attempts() int {
	if k.unreached.Load() && !k.answered.Load() {
		return 1
	}
	return maxAttempts
}

// failed notes the outcome of a request with all its attempts.
func (l *lazyClient) failed(err error) {
	l.mu.Lock()
	k := l.contact
	l.mu.Unlock()
	var op *net.OpError
	if k != nil && errors.As(err, &op) && op.Op == "dial" && !errors.Is(err, context.Canceled) {
		k.unreached.Store(true)
	}
}

// listener notes that the store answers.
type listener struct {
	s3.HTTPClient
	contact *contact
}

func (l *listener) Do(r *http.Request) (*http.Response, error) {
	resp, err := l.HTTPClient.Do(r)
	if err == nil {
		l.contact.answered.Store(true)
	}
	return resp, err
}

// patience is how often a request is made, by the knowledge of the store.
type patience struct {
	*retry.Standard
	contact *contact
}

func (p *patience) MaxAttempts() int { return p.contact.attempts() }

func (l *lazyClient) of(b *bucket) (*s3.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != nil {
		return l.c, nil
	}
	ctx, cancel := b.bounded(context.Background())
	defer cancel()
	// The library reads the usual variables and files: AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL,
	// AWS_ENDPOINT_URL_S3, AWS_CA_BUNDLE, ~/.aws/config and so on.
	k := &contact{}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(connections()),
		config.WithRetryer(func() aws.Retryer { return &patience{retryer(), k} }),
		config.WithLogger(logging.Nop{})) // errors say all
	if err != nil {
		return nil, b.wrap("use", "", err)
	}
	endpoint := os.Getenv("AWS_ENDPOINT_URL_S3") + os.Getenv("AWS_ENDPOINT_URL") + aws.ToString(cfg.BaseEndpoint)
	if cfg.Region == "" && endpoint != "" {
		cfg.Region = "us-east-1" // other stores than Amazon's ask for a name and accept this one
	}
	known, _ := contacts.LoadOrStore(endpoint, k)
	k = known.(*contact)
	l.contact = k
	l.c = s3.NewFromConfig(cfg, func(o *s3.Options) {
		// A bucket's own host name is a matter of Amazon's; others rarely have one.
		o.DisableLogOutputChecksumValidationSkipped = true // shards have their own
		o.HTTPClient = &listener{o.HTTPClient, k}
		o.UsePathStyle = endpoint != "" && !strings.Contains(endpoint, ".amazonaws.com")
	})
	return l.c, nil
}

// connections are shared by all buckets.
var connections = sync.OnceValue(func() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.ResponseHeaderTimeout = object.ReplyTimeout
		t.MaxIdleConnsPerHost = 2 * object.AtOnce
	})
})

// retryer repeats requests that were not answered, or were answered with "slow down".
func retryer() *retry.Standard {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts, o.MaxBackoff, o.RateLimiter = maxAttempts, object.MaxBackoff, ratelimit.None
		o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			if errors.Is(err, io.ErrUnexpectedEOF) { // in the middle of a reply
				return aws.TrueTernary
			}
			return aws.UnknownTernary
		})}, o.Retryables...)
		if object.MaxBackoff < time.Second {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) {
				return object.MaxBackoff, nil
			})
		}
	})
}

// unsigned leaves the bytes of a part out of the signature where TLS protects them: the store compares their CRC-32C.
func unsigned(o *s3.Options) {
	if strings.HasPrefix(aws.ToString(o.BaseEndpoint), "http://") {
		return
	}
	o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
		return v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware(s)
	})
}
