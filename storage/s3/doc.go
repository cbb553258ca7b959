// Package s3 lets a program keep checkpoints in an object store, at s3://bucket/prefix, by the S3 protocol. A program
// imports it for that alone:
//
//	import _ "github.com/holdfast-hpc/holdfast/storage/s3"
//
// Without it a program contains nothing of the AWS library, and a level with such a URL is an error that names this
// import. The tool holdfast has it. Programs in other languages need nothing: holdfast node writes their checkpoints.
package s3
