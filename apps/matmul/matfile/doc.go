// Package matfile reads and writes dense real matrices in files of NumPy's .npy
// form, version 1, with float32 or float64 row by row, as numpy.save writes them.
//
// A Matrix holds float64 row by row; whether it came from float32 is remembered,
// so that it is written back as it was.
package matfile
