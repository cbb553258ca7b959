package object

import (
	"errors"
	"strings"
	"testing"
)

// TestNew refuses URLs that name no bucket, and names the import that a program lacks.
func TestNew(t *testing.T) {
	defer func(f func(name, prefix string) Bucket) { open = f }(open)
	for _, c := range []struct {
		url  string
		want error
		text string
	}{
		{"s3://", ErrURL, "s3://bucket/prefix"},
		{"s3://user@bucket/p", ErrURL, "AWS_ENDPOINT_URL_S3"},
		{"s3://bucket/a//b", ErrURL, "empty"},
		{"s3://bucket/p", ErrNoImport, `import _ "github.com/holdfast-hpc/holdfast/storage/s3"`},
	} {
		_, err := New(c.url)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want %v with %q", c.url, err, c.want, c.text)
		}
	}
	var got [2]string
	Register(func(name, prefix string) Bucket { got = [2]string{name, prefix}; return nil })
	for url, want := range map[string][2]string{"s3://bucket": {"bucket", ""}, "s3://b/a/c/": {"b", "a/c/"}} {
		if _, err := New(url); err != nil || got != want {
			t.Errorf("%s: got %q and %v, want %q", url, got, err, want)
		}
	}
}
