package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
)

// snapshotDue reports whether the bodies are to be written as they are at this step.
func (s *simulation) snapshotDue() bool {
	return s.snapshotEvery > 0 && s.step%s.snapshotEvery == 0
}

// snapshot writes the bodies as they are, as CSV, named by the step. It is collective;
// rank 0 writes. After a restart the same files are written again with the same bytes.
func (s *simulation) snapshot() error {
	all, err := s.collect()
	if err != nil || s.World.Rank() != 0 {
		return err
	}
	name := filepath.Join(s.snapshots, fmt.Sprintf("step-%08d.csv", s.step))
	return job.WriteFile(name, func(w io.Writer) error { return all.Write(w, fmt.Sprintf("step: %d", s.step)) })
}
