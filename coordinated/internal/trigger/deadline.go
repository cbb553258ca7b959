package trigger

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-hpc/holdfast/slurm"
)

// Deadline asks Slurm, without the program's help, when a job will be ended; zero: unknown, or never.
func Deadline(ctx context.Context, job string, log *slog.Logger) time.Time {
	end, err := (&slurm.Client{}).Deadline(ctx, job)
	if err != nil {
		if ctx.Err() == nil {
			log.Warn("holdfast: no final checkpoint before the deadline, because Slurm does not report it",
				"error", err)
		}
		return time.Time{}
	}
	if end.IsZero() {
		log.Info("holdfast: the job has no time limit, so no final checkpoint is scheduled")
	}
	return end
}
