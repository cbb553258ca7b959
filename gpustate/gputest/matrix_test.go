package gputest

import (
	"bufio"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestMatrix restores on every platform what every platform captured. The
// process that captured is killed before.
func TestMatrix(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	dir := t.TempDir()
	platforms := present(t, dir)
	results := map[string]map[string]string{}
	for _, from := range platforms {
		results[from.Name] = map[string]string{}
		file := filepath.Join(dir, from.Name+".capture")
		writeAndKill(t, from, dir, file)
		for _, to := range platforms {
			results[from.Name][to.Name] = "ok"
			for _, role := range []string{"read into objects", "read into nothing"} {
				if out, err := child(t, to, dir, role, file).CombinedOutput(); err != nil {
					results[from.Name][to.Name] = "FAILED"
					t.Errorf("%s -> %s, %s: %v\n%s", from.Name, to.Name, role, err, out)
				}
			}
		}
	}
	fmt.Print(table(platforms, results))
}

func writeAndKill(t *testing.T, p Platform, dir, file string) {
	t.Helper()
	c := child(t, p, dir, "write", file)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	written := false
	for s := bufio.NewScanner(out); s.Scan(); {
		if s.Text() == "written" {
			written = true
			_ = c.Process.Kill()
		}
	}
	err = c.Wait()
	if !written {
		t.Errorf("capture on %s: %v\n%s", p.Name, err, errs.String())
	}
}

// table is the result for people.
func table(platforms []Platform, results map[string]map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-20s", "captured \\ restored")
	for _, p := range platforms {
		fmt.Fprintf(&b, " %-9s", p.Name)
	}
	b.WriteByte('\n')
	for _, from := range platforms {
		fmt.Fprintf(&b, "%-20s", from.Name)
		for _, to := range platforms {
			fmt.Fprintf(&b, " %-9s", results[from.Name][to.Name])
		}
		b.WriteByte('\n')
	}
	return b.String()
}
