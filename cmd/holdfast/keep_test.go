package main

import (
	"strings"
	"testing"
)

// TestKeepVerb keeps an epoch by a name, sees it, and takes it back by the name.
func TestKeepVerb(t *testing.T) {
	local, global := jobDirs(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"keep", global}, exitGood, ""},
		{[]string{"keep", local, "3"}, exitNoLook, "HOLDFAST_GLOBAL"},
		{[]string{"keep", global, "4"}, exitNoLook, "no epoch 4"},
		{[]string{"keep", global, "3", "--remove"}, exitNoLook, "not kept"},
		{[]string{"keep", global, "--name", "x"}, exitNoLook, "EPOCH"},
		{[]string{"keep", global, "newest", "--name", "steady"}, exitGood, "steady"},
		{[]string{"keep", "--json", global}, exitGood, `"name":"steady"`},
		{[]string{"ls", global}, exitGood, "committed, kept as steady"},
		{[]string{"ls", "--json", global}, exitGood, `"kept":true`},
		{[]string{"verify", "--complete", local, global}, exitGood, ""},
		{[]string{"keep", global, "steady", "--remove"}, exitGood, "no longer kept"},
		{[]string{"keep", "--json", global}, exitGood, ""},
	} {
		code, out, errs := run(t, c.args...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%v: got exit code %d, %q, %q, want %d and %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	if _, out, _ := run(t, "ls", global); strings.Contains(out, "kept") {
		t.Errorf("still kept:\n%s", out)
	}
}
