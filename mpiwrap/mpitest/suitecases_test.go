package mpitest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// Case is one conformance test. Every rank of the world runs it; it returns what
// is wrong. It leaves no message and no communicator behind.
type Case struct {
	Name string
	Run  func(w *mpiwrap.Comm) error
}

// Suite returns the conformance cases. They hold on every message layer, with two
// ranks or more.
func Suite() []Case {
	var all []Case
	for _, group := range [][]Case{p2pCases, requestCases, collectiveCases, commCases, windowCases, drainCases,
		misuseCases, deviceCases} {
		all = append(all, group...)
	}
	return all
}

// Check runs the suite on a world, rank by rank in step, and stops at the first
// failure with the case's name.
func Check(w *mpiwrap.Comm, cases []Case) error {
	for _, c := range cases {
		if err := c.Run(w); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if err := w.Barrier(); err != nil {
			return fmt.Errorf("barrier after %s: %w", c.Name, err)
		}
	}
	return nil
}

// equal compares a result with what it should be.
func equal[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

func equalSlices[T comparable](what string, got, want []T) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s: got %v, want %v", what, clip(got), clip(want))
	}
	return nil
}

func clip[T any](s []T) []T { return s[:min(len(s), 16)] }

// wantErr reports whether err is of the kind that a bad argument must give.
func wantErr(what string, err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("%s: got error %v, want %v", what, err, want)
	}
	var e *mpiwrap.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: error %v is no *mpiwrap.Error", what, err)
	}
	return nil
}

// all returns the first error.
func all(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// status checks a status.
func status(what string, got mpiwrap.Status, source, tag, bytes int) error {
	return all(equal(what+" source", got.Source, source), equal(what+" tag", got.Tag, tag),
		equal(what+" bytes", got.Bytes, bytes))
}

// pattern fills a slice with values that tell rank, tag and place apart.
func pattern(n, rank, tag int) []float64 {
	s := make([]float64, n)
	for i := range s {
		s[i] = float64(rank)*1e6 + float64(tag)*1e3 + float64(i)
	}
	return s
}
