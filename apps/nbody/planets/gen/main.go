// Gen writes the Sun and the planets at a date as a file of bodies:
//
//	go run ./apps/nbody/planets/gen -date 2451545 -out solar-j2000.csv
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"github.com/holdfast-hpc/holdfast/apps/nbody/planets"
)

func main() {
	date := flag.Float64("date", planets.J2000,
		"Julian date, TT; the elements hold from 2378497 (1800) to 2469808 (2050)")
	out := flag.String("out", "", "file to write; default standard output")
	flag.Parse()
	if err := run(*date, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(date float64, out string) error {
	var b bytes.Buffer
	if err := planets.Write(&b, date); err != nil {
		return err
	}
	if out == "" {
		_, err := os.Stdout.Write(b.Bytes())
		return err
	}
	return os.WriteFile(out, b.Bytes(), 0o644)
}
