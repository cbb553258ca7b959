// Package imports holds the rule of which package of this module may import
// which, and the test that enforces it. docs/ARCHITECTURE.md has the picture.
//
// It is a test of our own because depguard and go-arch-lint look at the imports of
// each file alone, and most rules here reach through packages in between: storage
// must not come to mpiwrap by way of any internal package either.
package imports
