// Package persist has what an epoch needs behind the program: operations at levels that are
// given up when a disk or a server does not answer, the turns in which epochs reach the
// outer levels, and the decision how far a final one gets in the time that is left. The
// order of put, vote and commit is coordinated's.
package persist
