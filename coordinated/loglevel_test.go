package coordinated

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestLogLevel: the key log decides which lines the log has, whether its Logger would take them or not; without it the
// Logger does.
func TestLogLevel(t *testing.T) {
	for _, c := range []struct {
		key, want string
		own       slog.Level
	}{
		{"", "IWE", slog.LevelInfo},
		{"", "E", slog.LevelError},
		{"", "DIWE", slog.LevelDebug},
		{"debug", "DIWE", slog.LevelInfo},
		{"info", "IWE", slog.LevelInfo},
		{"warn", "WE", slog.LevelInfo},
		{"error", "E", slog.LevelDebug},
	} {
		clean(t)
		t.Setenv("HOLDFAST_LOG", c.key)
		t.Setenv("HOLDFAST_GLOBAL", t.TempDir())
		var out bytes.Buffer
		o := FromEnv()
		o.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: c.own}))
		if err := o.validate(); err != nil {
			t.Fatal(err)
		}
		log := o.Logger.With("rank", 0).WithGroup("g")
		log.Debug("x")
		log.Info("x")
		log.Warn("x")
		log.Error("x")
		var got strings.Builder
		for line := range strings.Lines(out.String()) {
			_, level, _ := strings.Cut(line, "level=")
			got.WriteByte(level[0])
		}
		if got.String() != c.want {
			t.Errorf("log %q of a Logger of level %v: %q, want %q", c.key, c.own, got.String(), c.want)
		}
	}
}
