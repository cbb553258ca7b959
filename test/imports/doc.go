// Package imports holds the rule of which package of this module may import
// which, and the test that enforces it. docs/ARCHITECTURE.md has the picture.
package imports
