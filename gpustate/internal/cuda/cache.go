package cuda

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// cacheEnv names the directory of the build cache; "off" is none. Without it the
// cache lies in the user's cache directory.
const cacheEnv = "HOLDFAST_BUILD_CACHE"

// maxCached is how many programs the cache keeps.
const maxCached = 512

// cache keeps results of NVRTC from one process to the next, so that a restart need not compile again. The driver has a
// cache for PTX and OpenCL has caches of its own, NVRTC has none. An entry's name is the SHA-256 of everything that the
// code depends on, its first bytes are that of the rest. A cache that cannot be read or written is no error.
type cache struct{ dir string }

func openCache() cache {
	dir := os.Getenv(cacheEnv)
	switch {
	case dir == "off":
		return cache{}
	case dir != "":
		return cache{dir}
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return cache{}
	}
	return cache{filepath.Join(user, "holdfast", "nvrtc")}
}

// cacheable reports that the code depends on the source alone and not on files
// that it includes, on whatever line.
func cacheable(source string) bool {
	return !strings.Contains(strings.ReplaceAll(source, "\\\n", ""), "include")
}

func (c cache) file(key string) string {
	return filepath.Join(c.dir, fmt.Sprintf("%x", sha256.Sum256([]byte(key))))
}

// load gives the code under key, nil if there is none or it is damaged.
func (c cache) load(key string) []byte {
	if c.dir == "" {
		return nil
	}
	b, err := os.ReadFile(c.file(key))
	if err != nil || len(b) <= sha256.Size {
		return nil
	}
	sum := sha256.Sum256(b[sha256.Size:])
	if !bytes.Equal(sum[:], b[:sha256.Size]) {
		return nil
	}
	return b[sha256.Size:]
}

// store enters code. Processes that store the same at once do not disturb each
// other: a file gets its name when it is whole.
func (c cache) store(key string, code []byte) {
	if c.dir == "" || os.MkdirAll(c.dir, 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(c.dir, ".new-*")
	if err != nil {
		return
	}
	sum := sha256.Sum256(code)
	_, err = f.Write(append(sum[:], code...))
	if cmp.Or(err, f.Close()) != nil || os.Rename(f.Name(), c.file(key)) != nil {
		_ = os.Remove(f.Name())
		return
	}
	c.trim()
}

// trim removes the oldest entries beyond maxCached.
func (c cache) trim() {
	entries, err := os.ReadDir(c.dir)
	if err != nil || len(entries) <= maxCached {
		return
	}
	age := map[string]int64{}
	for _, e := range entries {
		if i, err := e.Info(); err == nil {
			age[e.Name()] = i.ModTime().UnixNano()
		}
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(age[a.Name()], age[b.Name()]) })
	for _, e := range entries[:len(entries)-maxCached] {
		_ = os.Remove(filepath.Join(c.dir, e.Name()))
	}
}
