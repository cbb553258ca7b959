package mpilayer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// killedAndRestarted starts a program that kills itself behind a final checkpoint, and again under the other MPI, with
// the layer and the environment given. It returns what both starts say, and the error of the second.
func killedAndRestarted(t *testing.T, dir, layer string, from int, program map[string]string, env []string,
	ranks int, args ...string) (said string, err error) {
	t.Helper()
	both, checkpoints := mpirun.Launchers(), t.TempDir()
	for _, l := range []mpirun.Launcher{both[from], both[1-from]} {
		line := slices.Concat([]string{"env", preload(layer)}, env, []string{program[l.Name]}, args)
		var out string
		out, err = start(t, l, dir, checkpoints, ranks, line...)
		said += fmt.Sprintf("%s: %v\n%s", l.Name, err, out)
		if err == nil || !strings.Contains(out, "holdfast: committed") {
			break
		}
	}
	return said, err
}

// closingRight is what closing.c says, killed and restarted, when the checkpoint stopped its threads, not their end,
// and no message is missing.
func closingRight(out string, err error) bool {
	return err == nil && strings.Count(out, " has got all\n") == 2 && strings.Count(out, " begins at number ") == 4 &&
		strings.Count(out, " begins at number 0\n") == 2 && !strings.Contains(out, " begins at number 6000\n")
}

// TestSendsWhileCutCloses: what threads send while a checkpoint stops them is in it, or is sent again, however slow
// they are on their way into MPI; and no thread is in MPI when a restart hands over the messages of its checkpoint.
func TestSendsWhileCutCloses(t *testing.T) {
	dir := installed(t)
	program := compile(t, dir, "testdata/closing.c")
	for i, l := range mpirun.Launchers() {
		out, err := killedAndRestarted(t, dir, filepath.Join(dir, "libholdfast-mpi.so"), i, program, nil, 2)
		if !closingRight(out, err) {
			t.Errorf("from %s: %v\n%s", l.Name, err, out)
		}
	}
}

// planted is another text in the place of one of the layer's source. Where BUG is the name of a bug, it is there.
type planted struct{ file, from, to string }

const isBug = `#include <stdlib.h>
#include <string.h>
#define BUG(name) (getenv("BUG") != NULL && strcmp(getenv("BUG"), name) == 0)
`

var allPlanted = []planted{
	{"layer.h", "#define HFM_LAYER_H\n", "#define HFM_LAYER_H\n" + isBug},
	{"sync.inc.h", "send_aside(m->from, ANSWER, &m->order, sizeof m->order);\n\t\t\tm->order = 0;",
		"for (int i = BUG(\"twice\") ? 2 : !BUG(\"lost\"); i > 0; i--) " +
			"send_aside(m->from, ANSWER, &m->order, sizeof m->order);\n\t\t\tm->order = 0;"},
	{"layer.c", "return m != LIBRARY;", "return m != LIBRARY && !(BUG(\"within\") && hfm_within != NULL);"},
	{"sync.inc.h", "all ? NULL : find(n)", "all || BUG(\"early\") ? NULL : find(n)"},
	{"drain.inc.h", "n > LONGEST_MATCHED && (", "n > (BUG(\"drained\") ? -1 : LONGEST_MATCHED) && ("},
	{"sync.inc.h", "r->taken_later = hfm_remove(", "r->taken_later = BUG(\"other\") ? false : hfm_remove("},
	{"layer.c", "while (__atomic_load_n(&closed, __ATOMIC_SEQ_CST) && !behind()) {",
		"while (!BUG(\"closed\") && __atomic_load_n(&closed, __ATOMIC_SEQ_CST) && !behind()) {"},
	{"page.c", "alone();\n\tconst char *why = hfm_load(record, bytes);",
		"if (BUG(\"load\")) {\n\t\treturn hfm_load(record, bytes);\n\t}\n" +
			"\talone();\n\tconst char *why = hfm_load(record, bytes);"},
	{"save.inc.h", "size_t at = 0;", "size_t at = BUG(\"behind\") ? n : 0;"},
	{"counts.inc.h", "blocks_on(HFM_Recv, c, any_source(source), any_tag(tag), 0);",
		"if (!BUG(\"unsaid\")) blocks_on(HFM_Recv, c, any_source(source), any_tag(tag), 0);"},
	{"complete.inc.h", "&requests[i], &b.statuses[out++], NULL",
		"&requests[i], &b.statuses[BUG(\"some\") ? (out++, n - 1) : out++], NULL"},
	{"counts.inc.h", "rc = C(pack)(buf, n, type, comm, 0, &packed, &bytes);",
		"rc = C(pack)(buf, BUG(\"replace\") ? n / 2 : n, type, comm, 0, &packed, &bytes);"},
	{"drain.inc.h", "hfm_add_mail(c, m);", "(BUG(\"mail\") ? hfm_return_mail : hfm_add_mail)(c, m);"},
	{"drain.inc.h", "(!at_point || !oldest(r))) {",
		"(!at_point || !oldest(r) || (BUG(\"file\") && (r->counted = true)))) {"},
	{"windows.inc.h", "if (w == NULL || !w->epochs.lock_all) {",
		"if (w == NULL || !w->epochs.lock_all || BUG(\"flush\")) {"},
	{"windows.inc.h", "e->lock_all = true)", "e->lock_all = !BUG(\"again\") || !hfm_restarted)"},
	{"save.inc.h", "return e->locks > 0 ", "return e->locks > 0 && !BUG(\"lock\")"},
	{"save.inc.h", "e->fenced != HFM_CALLS ?", "e->fenced != HFM_CALLS && !BUG(\"fence\") ?"},
	{"protect.inc.h", "base_in(k->array, k->offset,", "base_in(k->array, k->offset + (BUG(\"array\") ? 8 : 0),"},
	{"types.inc.h", "add_number(t, (long long)v[2] * extent);",
		"add_number(t, (long long)v[2] * (BUG(\"stride\") ? 1 : extent));"},
}

// buggyEnd is what the name of its directory has more than that of what users install.
const buggyEnd = "-with-bugs"

var buggy = sync.OnceValues(func() (dir string, err error) {
	dir = root + buggyEnd
	if out, err := exec.Command("sh", "-c", `cp -a "$0" "$1" && cp -a ../../Makefile ../../lib "$1"`, root, dir).
		CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	for _, bug := range allPlanted {
		path := filepath.Join(dir, "lib", "mpi", "src", bug.file)
		text, err := os.ReadFile(path)
		if err != nil || strings.Count(string(text), bug.from) != 1 {
			return "", fmt.Errorf("%s: %w, or not once %q", path, err, bug.from)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), bug.from, bug.to, 1)), 0o644); err != nil {
			return "", err
		}
	}
	out, err := exec.Command("make", "-s", "-C", dir, "mpi", "LIB="+dir, "CFLAGS=-O0").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

// withBugs returns the directory of a layer that has the bug that BUG names.
func withBugs(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds the layer once more")
	}
	installed(t)
	dir, err := buggy()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPlantedBugs: bugs in the acknowledgement of synchronous sends and in the gate of threads are found.
func TestPlantedBugs(t *testing.T) {
	dir, layer := installed(t), filepath.Join(withBugs(t), "libholdfast-mpi.so")
	const ranks, steps = 3, 4
	synchronous, closing := compile(t, dir, "testdata/synchronous.c"), compile(t, dir, "testdata/closing.c")
	for _, bug := range []struct{ name, limit, found string }{
		{"twice", "60", ""}, // an answer names its send: a second one does no harm
		{"lost", "2", "a synchronous send does not end"},
		{"early", "60", "a synchronous send has ended before its receive"},
		{"drained", "60", "a synchronous send has ended before its receive"},
		{"other", "60", "a synchronous send has ended before its receive"},
	} {
		out, err := killedAndRestarted(t, dir, layer, 1, synchronous, []string{"BUG=" + bug.name}, ranks,
			fmt.Sprint(steps), bug.limit)
		right := err == nil && len(sums(out)) == ranks
		if bug.found == "" && !right || !strings.Contains(out, bug.found) {
			t.Errorf("%s: want %q: %v\n%s", bug.name, bug.found, err, out)
		}
	}
	for name, found := range map[string]string{"closed": "", // the checkpoint may fail, or miss a number
		"load": "messages are handed over while a thread is in MPI"} {
		out, err := killedAndRestarted(t, dir, layer, 1, closing, []string{"BUG=" + name}, 2)
		if closingRight(out, err) || !strings.Contains(out, found) {
			t.Errorf("%s: want %q in %v\n%s", name, found, err, out)
		}
	}
}

// TestTightCollectives: threads that enter one collective after the other leave moments for checkpoints.
func TestTightCollectives(t *testing.T) {
	dir := installed(t)
	program := compile(t, dir, "testdata/tight.c")
	for _, l := range mpirun.Launchers() {
		out, err := start(t, l, dir, t.TempDir(), 2, program[l.Name], "6", "15")
		if err != nil || strings.Count(out, " has taken 6\n") != 2 {
			t.Errorf("%s: %v\n%s", l.Name, err, out)
		}
	}
}
