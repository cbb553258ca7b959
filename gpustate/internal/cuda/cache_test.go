package cuda

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "cache")
	t.Setenv(cacheEnv, dir)
	c := openCache()
	code := []byte("\x7fELF code")
	if got := c.load("key"); got != nil {
		t.Errorf("an empty cache gave %q", got)
	}
	c.store("key", code)
	if got := openCache().load("key"); !bytes.Equal(got, code) {
		t.Errorf("got %q, want %q", got, code)
	}
	if got := c.load("another key"); got != nil {
		t.Errorf("another key gave %q", got)
	}
	file := c.file("key")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		whole[i] ^= 1
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := c.load("key"); got != nil {
			t.Errorf("with byte %d flipped it gave %q", i, got)
		}
		whole[i] ^= 1
	}
	if err := os.WriteFile(file, whole[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.load("key"); got != nil {
		t.Errorf("a torn file gave %q", got)
	}
	for i := range maxCached + 10 {
		c.store(fmt.Sprint(i), code)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > maxCached {
		t.Errorf("%d entries, %v; want at most %d", len(entries), err, maxCached)
	}
	t.Setenv(cacheEnv, "off")
	openCache().store("key", code)
	if got := openCache().load("key"); got != nil {
		t.Errorf("no cache gave %q", got)
	}
}

func TestCacheable(t *testing.T) {
	for source, want := range map[string]bool{
		"__global__ void k() {}":                          true,
		"#define N 4\n__global__ void k() {}":             true,
		"#include \"tile.h\"\n__global__ void k() {}":     false,
		"int a;\n  #  include <cuda_fp16.h>\nint b;\n":    false,
		"#inc\\\nlude \"tile.h\"\n__global__ void k() {}": false,
	} {
		if got := cacheable(source); got != want {
			t.Errorf("cacheable(%q) = %v, want %v", source, got, want)
		}
	}
}
