// Package criu finds the CRIU of tests that take images.
package criu

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/image"
)

// Find finds a CRIU that works here: the one that scripts/setup.sh has built, or the one in PATH. Without one the test
// is skipped.
func Find(t *testing.T) image.CRIU {
	t.Helper()
	c, err := working()
	if err != nil {
		t.Skip(err)
	}
	return c
}

var working = sync.OnceValues(func() (image.CRIU, error) {
	built, err := os.UserCacheDir()
	if err == nil {
		built = filepath.Join(built, "holdfast-tests/criu/sbin/criu")
		_, err = os.Stat(built)
	}
	if err != nil {
		built = ""
	}
	c, err := image.FindCRIU(context.Background(), built)
	if err == nil {
		err = c.Check(context.Background())
	}
	return c, err
})
