// Package persist takes an epoch from a rank's captured memory to its levels, behind the program and together with the
// other ranks: Epoch.run is its way, put, vote and commit at the first level, then copy, vote and commit at each outer
// one, and retention after each commit. Repair does the same for the epoch that a restart has restored. Operations that
// hang are given up, epochs reach each level in turn, and a final one goes as far as there is time.
package persist
