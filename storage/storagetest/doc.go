// Package storagetest helps to test stores of checkpoints: a network in memory between stores, and the suite that every
// level passes.
package storagetest
