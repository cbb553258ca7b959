// Package browser opens pages in a headless Chromium, for tests that look at them as a reader does.
package browser

import (
	"bytes"
	"context"
	"os/exec"
	"testing"
	"time"
)

// Open opens a page with further options of Chromium's and returns what that printed. Without Chromium the test is
// skipped.
func Open(t *testing.T, url string, args ...string) string {
	t.Helper()
	bin, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: run make setup")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args = append([]string{"--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
		"--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
		"--user-data-dir=" + t.TempDir()}, args...)
	cmd := exec.CommandContext(ctx, bin, append(args, url)...)
	cmd.WaitDelay = 5 * time.Second
	var out, noise bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &noise
	if err := cmd.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, noise.String())
	}
	return out.String()
}
