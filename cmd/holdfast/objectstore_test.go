package main

import (
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/fakes3"
)

// TestVerbsOnObjectStore flushes an epoch to a bucket and looks after it there: the verbs that take a directory take
// the URL.
func TestVerbsOnObjectStore(t *testing.T) {
	local, _ := jobDirs(t)
	store := &fakes3.Server{}
	url := fakes3.Start(t, store)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"flush " + local + " --to " + url, exitGood, "epoch 3 is now committed in " + url},
		{"flush " + local + " --to " + url, exitGood, "already"},
		{"ls " + url, exitGood, "3"},
		{"show " + url, exitGood, "RANK"},
		{"verify --complete " + url, exitGood, "good"},
		{"verify " + local + " " + url, exitGood, "good"},
		{"prune -n " + url, exitGood, ""},
	} {
		if code, out, errs := run(t, strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: got exit code %d, %q, %q; want %d and %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	shard := "some/prefix/epoch-0000000003/rank-000001.shard"
	before := store.Keys()
	store.Edit(shard, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	if code, out, _ := run(t, "verify", local, url); code != exitBad || !strings.Contains(out, local) {
		t.Errorf("a damaged shard: got exit code %d, %q", code, out)
	}
	store.Edit(shard, func([]byte) []byte { return nil })
	if code, out, _ := run(t, "verify", url); code != int(exitMissing) {
		t.Errorf("a missing shard: got exit code %d, %q, of %v", code, out, before)
	}
	if code, _, errs := run(t, "ls", "s3://no-such-bucket/x"); code != exitNoLook ||
		!strings.Contains(errs, "create the bucket") {
		t.Errorf("no bucket: got exit code %d, %q", code, errs)
	}
	if code, _, errs := run(t, "ls", url+"/nothing/there"); code != exitNoLook || !strings.Contains(errs, "s3://") {
		t.Errorf("nothing there: got exit code %d, %q", code, errs)
	}
}
