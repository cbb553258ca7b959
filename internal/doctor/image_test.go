package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/image"
)

// TestImages: which CRIU there is, and whether the kernel and the rights suffice.
func TestImages(t *testing.T) {
	const all, noResource, user = "000001ffffffffff", "000001fffeffffff", "0000000000000000"
	for _, c := range []struct {
		version, rights string
		fails           bool
		state           State
		want            string
	}{
		{"", all, false, Note, "no criu in PATH"},
		{"3.17.1", all, false, Note, "4.1 is needed"},
		{"4.2.1", all, false, OK, "these rights suffice"},
		{"4.2.1", noResource, false, OK, "CAP_SYS_RESOURCE"},
		{"4.2.1", user, false, Note, "lacks rights: CAP_SYS_PTRACE"},
		{"5.0", all, true, Note, "no such kernel"},
	} {
		dir := t.TempDir()
		if c.version != "" {
			text := fmt.Sprintf("#!/bin/sh\necho Version: %s\n", c.version)
			if err := os.WriteFile(filepath.Join(dir, "criu"), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		} else if exists("/usr/sbin/criu") || exists("/usr/local/sbin/criu") {
			continue // there is one beside PATH
		}
		t.Setenv("PATH", dir)
		r := &report{}
		r.lookImages(t.Context(), "Name:\tx\nCapEff:\t"+c.rights+"\nSeccomp:\t0\n",
			func(image.CRIU, context.Context) error {
				if c.fails {
					return errors.New("no such kernel")
				}
				return nil
			})
		if len(r.findings) != 1 || r.findings[0].State != c.state || !strings.Contains(r.findings[0].Detail, c.want) {
			t.Errorf("%s, %s: got %+v, want %v %q", c.version, c.rights, r.findings, c.state, c.want)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
