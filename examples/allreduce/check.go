package main

import (
	"errors"
	"log"
)

// check ends the program, and with it all ranks, if something has failed.
func check(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
