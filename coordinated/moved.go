package coordinated

import "github.com/holdfast-hpc/holdfast/internal/job"

// What the tool uses, until it takes it from internal/job.
type (
	Supervisor     = job.Supervisor
	Supervised     = job.Supervised
	Report         = job.Report
	RestoredStatus = job.RestoredStatus
	LostStatus     = job.LostStatus
	Guard          = job.Guard
	Started        = job.Started
	Orphan         = job.Inquiry
	Client         = job.Client
	JobStatus      = job.JobStatus
	NextStatus     = job.NextStatus
	EpochStatus    = job.EpochStatus
	RankStatus     = job.RankStatus
	Work           = job.Work
)

// As above.
const (
	SupervisorEnded = job.SupervisorEnded
	SupervisorDead  = job.SupervisorDead
	GuardStep       = job.GuardStep
)

// As above.
var (
	Supervise    = job.Supervise
	Attend       = job.Attend
	Announce     = job.Announce
	DialJob      = job.DialJob
	DalyInterval = job.DalyInterval
)
