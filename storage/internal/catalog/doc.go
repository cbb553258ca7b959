// Package catalog knows which epochs there are at the levels of a job, for one of its ranks: what lies in the rank's
// own directories, what other ranks and rank 0 have said of theirs, what all ranks have agreed on, what is in use, and
// how often a restore was fatal.
//
// It decides nothing without the ranks' agreement, and writes notes beside epochs alone, never an epoch. A Look is
// what one moment saw of a level: what is removed, listed as present and noted in ledgers goes by it.
//
// A Catalog and its Levels may be shared by goroutines, once they are all added.
package catalog
