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
		{[]string{"keep", global, "3", "--name", "2"}, exitNoLook, "another epoch"},
		{[]string{"keep", global, "3", "--name", "newest"}, exitNoLook, "another epoch"},
		{[]string{"keep", "3", global}, exitGood, "kept"},
		{[]string{"keep", "3", global, "--remove"}, exitGood, "no longer kept"},
		{[]string{"keep", global, "newest", "--name", "steady"}, exitGood, "steady"},
		{[]string{"keep", "--json", global}, exitGood, `"name":"steady"`},
		{[]string{"ls", global}, exitGood, "committed, kept as steady"},
		{[]string{"ls", "--json", global}, exitGood, `"kept":true`},
		{[]string{"verify", "--complete", local, global}, exitGood, ""},
		{[]string{"ls", "-e", "3", global}, exitGood, "kept as steady"},
		{[]string{"ls", "-e", "4", global}, exitNoLook, "no epoch 4"},
		{[]string{"keep", global, "-e", "steady", "--remove"}, exitGood, "no longer kept"},
		{[]string{"keep", "-e", "3", global}, exitGood, "kept"},
		{[]string{"keep", global, "3", "--remove"}, exitGood, "no longer kept"},
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

// TestDirectoriesOfTheJob: what looks at the checkpoints of a job need not be told where they are when the environment
// says it; what removes or rewrites needs it.
func TestDirectoriesOfTheJob(t *testing.T) {
	local, global := jobDirs(t)
	t.Chdir(t.TempDir())
	t.Setenv("HOLDFAST_GLOBAL", global)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"ls", exitGood, global},
		{"show", exitGood, global},
		{"verify", exitGood, "good"},
		{"keep newest --name steady", exitGood, "steady"},
		{"keep", exitGood, "steady"},
		{"keep steady --remove", exitGood, "no longer kept"},
		{"export newest", exitGood, "RANK"},
		{"status --timeout 1ms", exitNoLook, global},
		{"request --timeout 1ms", exitNoLook, global},
		{"prune", exitNoLook, "needs an argument"},
		{"repair", exitNoLook, "needs an argument"},
	} {
		code, out, errs := run(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%s: got exit code %d, %q, %q, want %d and %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	t.Setenv("HOLDFAST_LOCAL", local)
	if code, out, _ := run(t, "ls"); code != exitGood || !strings.Contains(out, local) {
		t.Errorf("got exit code %d, %q, want the epochs at local, too", code, out)
	}
	t.Setenv("HOLDFAST_LOCAL", t.TempDir()) // of another node, where no job has run
	if code, _, errs := run(t, "ls"); code != exitGood {
		t.Errorf("got exit code %d, %q, want those at global", code, errs)
	}
}
