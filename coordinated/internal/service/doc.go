// Package service lets other processes of the job's owner reach it, at rank 0: it publishes
// the contact file, answers holdfast status and request, and refuses a second run in the
// same directory.
package service
