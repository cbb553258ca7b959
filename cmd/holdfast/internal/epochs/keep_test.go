package epochs

import (
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
)

// TestKeepVerb keeps an epoch by a name, sees it, and takes it back by the name.
func TestKeepVerb(t *testing.T) {
	local, global := jobDirs(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"keep", global}, cli.Good, ""},
		{[]string{"keep", local, "3"}, cli.NoLook, "HOLDFAST_GLOBAL"},
		{[]string{"keep", global, "4"}, cli.NoLook, "no epoch 4"},
		{[]string{"keep", global, "foo"}, cli.NoLook, `no epoch in ` + global + ` is kept under the name "foo"; give`},
		{[]string{"keep", global, "3", "--remove"}, cli.NoLook, "not kept"},
		{[]string{"keep", global, "--name", "x"}, cli.NoLook, "EPOCH"},
		{[]string{"keep", global, "3", "--name", "2"}, cli.NoLook, "another epoch"},
		{[]string{"keep", global, "3", "--name", "newest"}, cli.NoLook, "another epoch"},
		{[]string{"keep", "3", global}, cli.Good, "kept"},
		{[]string{"keep", "3", global, "--remove"}, cli.Good, "no longer kept"},
		{[]string{"keep", global, "newest", "--name", "steady"}, cli.Good, "steady"},
		{[]string{"keep", "--json", global}, cli.Good, `"name":"steady"`},
		{[]string{"ls", global}, cli.Good, "committed, kept as steady"},
		{[]string{"ls", "--json", global}, cli.Good, `"kept":true`},
		{[]string{"verify", "--complete", local, global}, cli.Good, ""},
		{[]string{"ls", "-e", "3", global}, cli.Good, "kept as steady"},
		{[]string{"ls", "-e", "4", global}, cli.NoLook, "no epoch 4"},
		{[]string{"keep", global, "-e", "steady", "--remove"}, cli.Good, "no longer kept"},
		{[]string{"keep", "-e", "3", global}, cli.Good, "kept"},
		{[]string{"keep", global, "3", "--remove"}, cli.Good, "no longer kept"},
		{[]string{"keep", "--json", global}, cli.Good, ""},
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
		{"ls", cli.Good, global},
		{"show", cli.Good, global},
		{"verify", cli.Good, "good"},
		{"keep newest --name steady", cli.Good, "steady"},
		{"keep", cli.Good, "steady"},
		{"keep steady --remove", cli.Good, "no longer kept"},
		{"export newest", cli.Good, "RANK"},
		{"prune", cli.NoLook, "needs an argument"},
		{"repair", cli.NoLook, "needs an argument"},
	} {
		code, out, errs := run(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%s: got exit code %d, %q, %q, want %d and %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	t.Setenv("HOLDFAST_LOCAL", local)
	if code, out, _ := run(t, "ls"); code != cli.Good || !strings.Contains(out, local) {
		t.Errorf("got exit code %d, %q, want the epochs at local, too", code, out)
	}
	t.Setenv("HOLDFAST_LOCAL", t.TempDir()) // of another node, where no job has run
	if code, _, errs := run(t, "ls"); code != cli.Good {
		t.Errorf("got exit code %d, %q, want those at global", code, errs)
	}
}
