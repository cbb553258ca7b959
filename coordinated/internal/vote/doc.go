// Package vote is the agreement of ranks on epochs: it encodes the shards that each has written, its commits, and the
// epochs that it can restore, and draws the conclusion from all votes.
package vote
