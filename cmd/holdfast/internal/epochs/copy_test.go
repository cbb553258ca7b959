package epochs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

// TestCopyVerb takes an epoch to a bucket, and from there to a new directory, and looks at it there.
func TestCopyVerb(t *testing.T) {
	local, global := jobDirs(t)
	url, site := fakes3.Start(t, &fakes3.Server{}), filepath.Join(t.TempDir(), "site")
	missing := filepath.Join(site, "a", "b")
	before := tree(t, local)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"copy " + local + " --to " + url, cli.Good, "epoch 3 (391 KiB) is now committed in " + url},
		{"copy " + local + " " + global + " --to " + url + " -e 3", cli.Good, url + " has epoch 3 already"},
		{"copy " + url + " --to " + site + " --jobs 1 --json", cli.Good,
			`{"epoch":3,"to":"` + site + `","bytes":400000}`},
		{"verify --complete " + site, cli.Good, "good"},
		{"verify " + local + " " + site, cli.Good, "good"},
		{"copy " + local + " --to " + local, cli.NoLook, "also a directory to copy from"},
		{"copy " + local + " --to " + site + " -e 4", cli.NoLook, "no epoch 4"},
		{"copy " + local + " --to " + site + " -e 0", cli.NoLook, "neither a number"},
		{"copy " + local + " --to " + site + " --jobs 0", cli.NoLook, "--jobs 0: want more than 0"},
		{"copy " + local + " --to " + missing, cli.NoLook, "--to: directory " + missing + " cannot be used: "},
		{"copy " + local + " --to " + missing + "/", cli.NoLook, "(create it, mount it, or correct the path)"},
		{"copy " + local, cli.NoLook, "to"},
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
	var said cli.Failure
	if err := json.Unmarshal([]byte(out), &said); err != nil || code != cli.Bad ||
		!strings.Contains(said.Error, "rank 1") {
		t.Errorf("of a damaged shard: got exit code %d, %q, %q, %v", code, out, errs, err)
	}
	if err := os.Remove(filepath.Join(local, "epoch-0000000003", "rank-000001.shard")); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run(t, "copy", local, "--to", filepath.Join(t.TempDir(), "x")); code != cli.Bad {
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
	if code := Run(ctx, []string{"copy", local, "--to", site}, &out, &errs); code != cli.NoLook ||
		!strings.Contains(errs.String(), "interrupted") {
		t.Errorf("got exit code %d, %q", code, errs.String())
	}
	if code, out, errs := run(t, "copy", local, "--to", site); code != cli.Good {
		t.Errorf("after it: got exit code %d, %q, %q", code, out, errs)
	}
}

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
		{"flush " + local + " --to " + url, cli.Good, "epoch 3 is now committed in " + url},
		{"flush " + local + " --to " + url, cli.Good, "already"},
		{"ls " + url, cli.Good, "3"},
		{"show " + url, cli.Good, "RANK"},
		{"verify --complete " + url, cli.Good, "good"},
		{"verify " + local + " " + url, cli.Good, "good"},
		{"prune -n " + url, cli.Good, ""},
	} {
		if code, out, errs := run(t, strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: got exit code %d, %q, %q; want %d and %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	shard := "some/prefix/epoch-0000000003/rank-000001.shard"
	before := store.Keys()
	store.Edit(shard, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	if code, out, _ := run(t, "verify", local, url); code != cli.Bad || !strings.Contains(out, local) {
		t.Errorf("a damaged shard: got exit code %d, %q", code, out)
	}
	store.Edit(shard, func([]byte) []byte { return nil })
	if code, out, _ := run(t, "verify", url); code != int(exitMissing) {
		t.Errorf("a missing shard: got exit code %d, %q, of %v", code, out, before)
	}
	if code, _, errs := run(t, "ls", "s3://no-such-bucket/x"); code != cli.NoLook ||
		!strings.Contains(errs, "create the bucket") {
		t.Errorf("no bucket: got exit code %d, %q", code, errs)
	}
	if code, _, errs := run(t, "ls", url+"/nothing/there"); code != cli.NoLook || !strings.Contains(errs, "s3://") {
		t.Errorf("nothing there: got exit code %d, %q", code, errs)
	}
}

// TestInterruptedAtObjectStore: a verb whose requests are not answered ends at a signal and says so. The next call
// removes all that it has left.
func TestInterruptedAtObjectStore(t *testing.T) {
	local, _ := jobDirs(t)
	store := &fakes3.Server{}
	stop := make(chan context.CancelFunc, 1)
	url := fakes3.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case cancel := <-stop:
			cancel()
			<-r.Context().Done()
		default:
			store.ServeHTTP(w, r)
		}
	}))
	if code, _, errs := run(t, "flush", local, "--to", url); code != cli.Good {
		t.Fatal(errs)
	}
	for _, args := range [][]string{{"ls", url}, {"show", url}, {"verify", url}, {"repair", url}, {"prune", url},
		{"keep", url, "3"}, {"copy", url, "--to", t.TempDir()}, {"copy", local, "--to", url + "/copy"},
		{"export", "3", "--from", url}} {
		ctx, cancel := context.WithCancel(t.Context())
		stop <- cancel
		var out, errs bytes.Buffer
		ended := make(chan int)
		go func() { ended <- Run(ctx, args, &out, &errs) }()
		select {
		case code := <-ended:
			if code != cli.NoLook || errs.String() != "holdfast: interrupted\n" {
				t.Errorf("%v: got exit code %d, %q, %q", args, code, out.String(), errs.String())
			}
		case <-time.After(time.Minute):
			t.Fatalf("%v does not end", args)
		}
	}
	for _, k := range store.Keys() {
		if strings.HasSuffix(k, "holdfast.run") {
			t.Errorf("a lock is left: %s", k)
		}
	}
	if code, out, errs := run(t, "verify", "--complete", url); code != cli.Good {
		t.Errorf("verify after it: got exit code %d, %q, %q", code, out, errs)
	}
}
