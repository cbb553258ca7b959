package opencl

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestStart runs the commands of docs/START.md for OpenCL programs, on PoCL: a program moves to another server, and
// prints what it does undisturbed. The page's user waits until the program computes, and so does the script.
func TestStart(t *testing.T) {
	l := newPoCLLab(t)
	page, err := os.ReadFile("../../docs/START.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "## OpenCL as it is")
	after, _, _ = strings.Cut(after, "\n## ")
	script := strings.Join(regexp.MustCompile("(?m)^    .*\n").FindAllString(after, -1), "")
	second := "unix:" + filepath.Join(l.dir, "second.sock")
	for old, now := range map[string]string{
		"./program &\n":      "./program 1000000000 enough >out &\nuntil grep -q 'round 0' out; do sleep .01; done\n",
		"gpu8:7478,nvidia\n": second + "," + platform + "\ntouch enough\nwait $!\n",
	} {
		if strings.Count(script, old) != 1 {
			t.Fatalf("START.md has not %q once in the commands\n%s", old, script)
		}
		script = strings.Replace(script, old, now, 1)
	}
	l.serve()
	l.serve("--listen", second)
	program, err := os.ReadFile(filepath.Join(built.dir, "moves"))
	if err == nil {
		err = os.WriteFile(filepath.Join(l.dir, "program"), program, 0o755)
	}
	installed := filepath.Join(l.dir, "holdfast", "share", "holdfast")
	if err == nil {
		err = os.MkdirAll(installed, 0o755)
	}
	if err == nil {
		err = os.Symlink(built.vendors, filepath.Join(installed, "opencl"))
	}
	if err != nil {
		t.Fatal(err)
	}
	user := []string{"HOME=" + l.dir, "PATH=" + built.dir + ":" + os.Getenv("PATH")}
	said := l.run(user, "bash", "-c", "set -e\n"+script)
	got, err := os.ReadFile(filepath.Join(l.dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	rounds := strconv.Itoa(bytes.Count(got, []byte("\n")))
	if want := l.run(without, "moves", rounds, filepath.Join(l.dir, "never")); string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if !strings.Contains(said, second) {
		t.Errorf("migrate says %q, want the server %s", said, second)
	}
}
