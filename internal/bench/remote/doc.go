// Package remote measures what a device of another process costs beside the
// same device in the program's own: `holdfast bench remote`. It starts its servers
// itself, on this machine.
package remote
