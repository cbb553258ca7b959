package coordinated

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/holdfast-hpc/holdfast/internal/config"
)

// Log returns the log of a Checkpointer with these options: Logger or slog.Default, by LogLevel.
func (o *Options) Log() *slog.Logger {
	log := cmp.Or(o.Logger, slog.Default())
	if o.LogLevel == slog.LevelInfo {
		return log
	}
	return slog.New(fromLevel{log.Handler(), o.LogLevel})
}

// fromLevel is a Handler that takes the lines of a level and above, whatever it takes by itself.
type fromLevel struct {
	slog.Handler
	level slog.Level
}

func (h fromLevel) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h fromLevel) WithAttrs(a []slog.Attr) slog.Handler {
	return fromLevel{h.Handler.WithAttrs(a), h.level}
}

func (h fromLevel) WithGroup(name string) slog.Handler {
	return fromLevel{h.Handler.WithGroup(name), h.level}
}

func setLogLevel(o *Options, text string) error {
	if o.LogLevel.UnmarshalText([]byte(text)) != nil {
		return config.ErrNotUnderstood
	}
	return nil
}
