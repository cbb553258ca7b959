package cuda

import "time"

// CheckpointTimes are how long the steps of the driver's own checkpoint of a
// process took.
type CheckpointTimes struct {
	Lock, Checkpoint, Restore, Unlock time.Duration
}

// Checkpoint lets the driver checkpoint another process of this user and restore
// it, as the tool cuda-checkpoint does. It is a baseline for measurements.
func Checkpoint(pid int) (t CheckpointTimes, err error) {
	for _, step := range []struct {
		name string
		call func(int) int32
		into *time.Duration
	}{
		{"cuCheckpointProcessLock", checkpointLock, &t.Lock},
		{"cuCheckpointProcessCheckpoint", checkpointTake, &t.Checkpoint},
		{"cuCheckpointProcessRestore", checkpointRestore, &t.Restore},
		{"cuCheckpointProcessUnlock", checkpointUnlock, &t.Unlock},
	} {
		begin := time.Now()
		if err := check(step.name, step.call(pid)); err != nil {
			return t, err
		}
		*step.into = time.Since(begin)
	}
	return t, nil
}
