// Package s3 lets a program keep checkpoints in an object store, at s3://bucket/prefix, by the S3 protocol. A program
// imports it for that alone:
//
//	import _ "github.com/holdfast-hpc/holdfast/storage/s3"
//
// Without it a program contains nothing of the AWS library, and a level with such a URL is an error that names this
// import. The tool holdfast has it. Programs in other languages need nothing: holdfast node writes their checkpoints.
//
// # Settings
//
// The package has no calls. The AWS library reads its usual variables and files, on each node: AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY, or AWS_PROFILE. Stores other than Amazon's need AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL. The
// bucket exists already, and the store supports conditional puts (If-None-Match, If-Match): storage.MeasureStore tries
// both.
//
// # Costs
//
// All requests are local to the rank that makes them. One without an answer is repeated, eight times in all, which
// takes most of a minute. An upload sends parts of at least 8 MiB, three at once, and has memory for four.
//
// Errors name the URL and the remedy. An absent object matches fs.ErrNotExist, missing rights fs.ErrPermission, a full
// store syscall.ENOSPC or syscall.EDQUOT.
package s3
