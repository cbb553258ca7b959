// Package storagetest helps to test stores of checkpoints: the stores of several ranks, a network in memory between
// them, and damage.
package storagetest
