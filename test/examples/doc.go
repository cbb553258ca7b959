// Package examples runs the programs below examples/ as a reader would: under both MPIs,
// killed and started again.
package examples
