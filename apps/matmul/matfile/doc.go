// Package matfile reads and writes dense real matrices in files of NumPy's .npy
// form, versions 1 to 3, with float32 or float64 in either order.
//
// A Matrix holds float64 row by row; whether it came from float32 is remembered,
// so that it is written back as it was.
package matfile
