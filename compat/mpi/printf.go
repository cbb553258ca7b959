package mpi

import "fmt"

// PrintAllProcs makes Printf and Println print on every rank, not only on rank 0.
var PrintAllProcs = false

func prefix() string { return fmt.Sprintf("P%d: ", WorldRank()) }

// Printf prints on rank 0; with PrintAllProcs on every rank, the others with
// their rank in front.
func Printf(fs string, pars ...any) {
	switch {
	case WorldRank() == 0:
		fmt.Printf(fs, pars...)
	case PrintAllProcs:
		AllPrintf(fs, pars...)
	}
}

// AllPrintf prints on every rank, with the rank in front.
func AllPrintf(fs string, pars ...any) { fmt.Printf(prefix()+fs, pars...) }

// Println prints a line where Printf does.
func Println(fs string) {
	switch {
	case WorldRank() == 0:
		fmt.Println(fs)
	case PrintAllProcs:
		AllPrintln(fs)
	}
}

// AllPrintln prints a line on every rank, with the rank in front.
func AllPrintln(fs string) { fmt.Println(prefix() + fs) }
