// Package campaigns has the tests of storage as a whole: jobs of a few ranks take, flush, restore and prune epochs
// while every operation of the disk crashes or fails in turn, bytes flip, votes fail and directories go.
package campaigns
