// Package shard writes the shard of one rank and reads it back. It is written in one pass through page-aligned buffers,
// at the pace that is allowed; what is read is verified chunk by chunk before anybody sees it. Whose file it is and how
// it gets its name is the business of others.
package shard
