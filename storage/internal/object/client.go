package object

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
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
	"golang.org/x/sync/errgroup"
)

// maxAttempts is how often a request is made until it is answered.
const maxAttempts = 8

// MaxBackoff bounds the time between two attempts, and ReplyTimeout that until a reply begins once a request is sent.
// Variables for tests.
var (
	MaxBackoff   = 10 * time.Second
	ReplyTimeout = 30 * time.Second
)

// atOnce is how many requests on small things are under way at once.
const atOnce = 16

// Each does n things, several at once. It returns the first error, when all that were begun have ended.
func Each(n int, do func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error { return do(i) })
	}
	return g.Wait()
}

// lazyClient is made when it is first needed.
type lazyClient struct {
	mu sync.Mutex
	c  *s3.Client // guarded by mu
}

func (l *lazyClient) of(b *Bucket) (*s3.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.err != nil || l.c != nil {
		return l.c, b.err
	}
	ctx, cancel := bounded(context.Background())
	defer cancel()
	// The library reads the usual variables and files: AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL,
	// AWS_ENDPOINT_URL_S3, AWS_CA_BUNDLE, ~/.aws/config and so on.
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(connections()), config.WithRetryer(retryer),
		config.WithLogger(logging.Nop{})) // errors say all
	if err != nil {
		return nil, b.fail("use", "", err)
	}
	endpoint := os.Getenv("AWS_ENDPOINT_URL_S3") + os.Getenv("AWS_ENDPOINT_URL") + aws.ToString(cfg.BaseEndpoint)
	if cfg.Region == "" && endpoint != "" {
		cfg.Region = "us-east-1" // other stores than Amazon's ask for a name and accept this one
	}
	l.c = s3.NewFromConfig(cfg, func(o *s3.Options) {
		// A bucket's own host name is a matter of Amazon's; others rarely have one.
		o.DisableLogOutputChecksumValidationSkipped = true // shards have their own
		o.UsePathStyle = endpoint != "" && !strings.Contains(endpoint, ".amazonaws.com")
	})
	return l.c, nil
}

// connections are shared by all buckets.
var connections = sync.OnceValue(func() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.ResponseHeaderTimeout = ReplyTimeout
		t.MaxIdleConnsPerHost = 2 * atOnce
	})
})

// retryer tries again what was not answered, or was answered with "slow down".
func retryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts, o.MaxBackoff, o.RateLimiter = maxAttempts, MaxBackoff, ratelimit.None
		o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			if errors.Is(err, io.ErrUnexpectedEOF) { // in the middle of a reply
				return aws.TrueTernary
			}
			return aws.UnknownTernary
		})}, o.Retryables...)
		if MaxBackoff < time.Second {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return MaxBackoff, nil })
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
