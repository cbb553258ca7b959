package gputest

import (
	"os"
	"testing"
	"time"
)

// TestSuite is what a child runs on its platform.
func TestSuite(t *testing.T) {
	if os.Getenv(roleEnv) != "suite" {
		t.Skip("TestConformance runs it on each platform")
	}
	p, err := current()
	if err != nil {
		t.Fatal(err)
	}
	Suite(t, p.Select)
}

// TestConformance runs the suite on every platform of the machine.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	here := present(t, dir)
	for _, p := range append(here, remotes(t, dir, here)...) {
		t.Run(p.Name, func(t *testing.T) {
			begin := time.Now()
			args := []string{"-test.run=^TestSuite$", "-test.v"}
			if testing.Short() {
				args = append(args, "-test.short")
			}
			out, err := child(t, p, dir, "suite", "", args...).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("suite took %v", time.Since(begin).Round(time.Millisecond))
		})
	}
}

// TestBuildsAtOnce starts four processes that build the same new program.
func TestBuildsAtOnce(t *testing.T) {
	dir := t.TempDir()
	for _, p := range present(t, dir) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			unique := dir + time.Now().String()
			done := make(chan error, 4)
			for range cap(done) {
				c := child(t, p, dir, "build", unique)
				c.Stderr = os.Stderr
				go func() { done <- c.Run() }()
			}
			for range cap(done) {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}
