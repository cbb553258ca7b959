// Package apps runs the applications and measures what the library costs
// them: with it and without, with checkpoints, through a restart, and on another
// device than before.
package apps
