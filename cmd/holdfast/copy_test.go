package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/fakes3"
)

// TestCopyVerb takes an epoch to a bucket, and from there to a new directory, and looks at it there.
func TestCopyVerb(t *testing.T) {
	local, global := jobDirs(t)
	url, site := fakes3.Start(t, &fakes3.Server{}), filepath.Join(t.TempDir(), "site")
	before := tree(t, local)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"copy " + local + " --to " + url, exitGood, "epoch 3 (391 KiB) is now committed in " + url},
		{"copy " + local + " " + global + " --to " + url + " -e 3", exitGood, url + " has epoch 3 already"},
		{"copy " + url + " --to " + site + " --jobs 1 --json", exitGood,
			`{"epoch":3,"to":"` + site + `","bytes":400000}`},
		{"verify --complete " + site, exitGood, "good"},
		{"verify " + local + " " + site, exitGood, "good"},
		{"copy " + local + " --to " + local, exitNoLook, "also a directory to copy from"},
		{"copy " + local + " --to " + site + " -e 4", exitNoLook, "no epoch 4"},
		{"copy " + local + " --to " + site + " -e 0", exitNoLook, "neither a number"},
		{"copy " + local + " --to " + site + " --jobs 0", exitNoLook, "--jobs 0: want more than 0"},
		{"copy " + local + " --to " + filepath.Join(site, "a", "b"), exitNoLook, "create it"},
		{"copy " + local, exitNoLook, "to"},
	} {
		code, out, errs := run(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%s: got exit code %d, %q, %q; want %d and %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	if after := tree(t, local); after != before {
		t.Errorf("copy has written to the directory that it reads:\n%swas\n%s", after, before)
	}
	flip(t, filepath.Join(local, "epoch-0000000003", "rank-000001.shard"), 5000)
	code, out, errs := run(t, "copy", "--json", local, "--to", filepath.Join(t.TempDir(), "x"))
	var said jsonError
	if err := json.Unmarshal([]byte(out), &said); err != nil || code != exitBad ||
		!strings.Contains(said.Error, "rank 1") {
		t.Errorf("of a damaged shard: got exit code %d, %q, %q, %v", code, out, errs, err)
	}
	if err := os.Remove(filepath.Join(local, "epoch-0000000003", "rank-000001.shard")); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run(t, "copy", local, "--to", filepath.Join(t.TempDir(), "x")); code != exitBad {
		t.Errorf("without a shard: got exit code %d, %q", code, errs)
	}
}

// TestCopyInterrupted: a signal ends a copy, and leaves no lock and no epoch behind.
func TestCopyInterrupted(t *testing.T) {
	local, _ := jobDirs(t)
	site := filepath.Join(t.TempDir(), "site")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("a signal"))
	var out, errs strings.Builder
	if code := Run(ctx, []string{"copy", local, "--to", site}, &out, &errs); code != exitNoLook ||
		!strings.Contains(errs.String(), "interrupted") {
		t.Errorf("got exit code %d, %q", code, errs.String())
	}
	if code, out, errs := run(t, "copy", local, "--to", site); code != exitGood {
		t.Errorf("after it: got exit code %d, %q, %q", code, out, errs)
	}
}
