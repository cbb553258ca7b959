// Package node tests libholdfast and its daemon with programs in C: they are checkpointed,
// killed and restarted, and end with the bytes of a run that was not.
package node
