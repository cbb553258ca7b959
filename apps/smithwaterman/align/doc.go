// Package align is the host side of local alignment with affine gaps: scoring,
// the trace back through blocks of the matrix, and the alignment as text.
//
// # Recurrence
//
// With s the score of a pair of letters, a gap of k letters costing
// open + (k-1) extend, and rows i over the first and columns j over the second
// sequence (Gotoh, J. Mol. Biol. 162 (1982) 705):
//
//	E[i,j] = max(H[i,j-1] - open, E[i,j-1] - extend)    a letter of b against a gap
//	F[i,j] = max(H[i-1,j] - open, F[i-1,j] - extend)    a letter of a against a gap
//	H[i,j] = max(0, H[i-1,j-1] + s(a[i],b[j]), E[i,j], F[i,j])
//
// H is 0 and E and F are Low outside the matrix. All numbers are int32, so every
// device and every distribution over ranks gives the same.
//
// # Choices
//
// Of several cells with the best score, the alignment ends in the one with the
// smallest row, then column. On the way back, equal values are taken in the
// order end, diagonal, E, F, and a gap is opened rather than extended.
package align
