// Package fetch reads the shard of one rank from whatever place has each of its chunks right: a directory, another
// rank, or what parity can be made to say.
package fetch
