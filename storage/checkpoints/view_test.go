package checkpoints

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// TestDirectoryGivenTwice: one directory under two spellings is one.
func TestDirectoryGivenTwice(t *testing.T) {
	t.Chdir(t.TempDir())
	wd, err := filepath.Abs(".")
	if err := errors.Join(err, os.Mkdir("d", 0o700), os.Symlink("d", "link")); err != nil {
		t.Fatal(err)
	}
	if got := distinct([]string{"d", "link", filepath.Join(wd, "d"), "e"}); len(got) != 2 || got[1] != "e" {
		t.Errorf("paths to one directory: got %v", got)
	}
}

// TestWithoutDirectories: what is given no directory says so, and does nothing.
func TestWithoutDirectories(t *testing.T) {
	to := filepath.Join(t.TempDir(), "to")
	for name, f := range map[string]func(ctx context.Context) error{
		"prune": func(ctx context.Context) error { _, err := Prune(ctx, nil, PruneRules{Keep: 1}); return err },
		"prune, dry run": func(ctx context.Context) error {
			_, err := Prune(ctx, nil, PruneRules{Keep: 1, DryRun: true})
			return err
		},
		"flush":   func(ctx context.Context) error { _, err := Flush(ctx, nil, to, 0); return err },
		"salvage": func(ctx context.Context) error { _, err := Salvage(ctx, "run", nil, to, 0); return err },
		"copy":    func(ctx context.Context) error { _, err := Copy(ctx, nil, to, 0, 0); return err },
		"copy of an epoch": func(ctx context.Context) error {
			_, err := Copy(ctx, nil, to, 3, 0)
			return err
		},
		"repair": func(ctx context.Context) error { _, err := Repair(ctx, nil, RepairRules{}); return err },
	} {
		var bad *level.OptionError
		if err := f(t.Context()); !errors.As(err, &bad) {
			t.Errorf("%s: got %v, want an *OptionError", name, err)
		}
	}
	v, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	epochs, err := v.Epochs(t.Context())
	if err != nil || len(epochs) > 0 || len(v.Dirs()) > 0 {
		t.Errorf("got epochs %v in %v, %v, want none", epochs, v.Dirs(), err)
	}
	if _, err := v.Fetch(t.Context(), 1, 0); err == nil {
		t.Error("a shard was fetched from nowhere")
	}
}

// TestNoBucket: a URL that names no bucket is an error wherever a directory is asked for.
func TestNoBucket(t *testing.T) {
	const url = "s3://"
	from, to := []string{url}, t.TempDir()
	for name, f := range map[string]func(ctx context.Context) error{
		"open":      func(ctx context.Context) error { _, err := Open(ctx, url); return err },
		"inspect":   func(ctx context.Context) error { _, err := Inspect(ctx, url); return err },
		"set aside": func(ctx context.Context) error { _, err := SetAside(ctx, url); return err },
		"keep":      func(ctx context.Context) error { return PinEpoch(ctx, url, 1, "x") },
		"unkeep":    func(ctx context.Context) error { return UnpinEpoch(ctx, url, 1) },
		"kept":      func(ctx context.Context) error { _, err := Pins(ctx, url); return err },
		"prune":     func(ctx context.Context) error { _, err := Prune(ctx, from, PruneRules{Keep: 1}); return err },
		"flush":     func(ctx context.Context) error { _, err := Flush(ctx, from, to, 0); return err },
		"salvage":   func(ctx context.Context) error { _, err := Salvage(ctx, "run", from, to, 0); return err },
		"copy":      func(ctx context.Context) error { _, err := Copy(ctx, from, to, 0, 0); return err },
		"repair":    func(ctx context.Context) error { _, err := Repair(ctx, from, RepairRules{}); return err },
	} {
		if err := f(t.Context()); err == nil || !strings.Contains(err.Error(), "s3://bucket/prefix") {
			t.Errorf("%s: got %v, want an error that shows how to write it", name, err)
		}
	}
}
