package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Kind describes the allowed values of a key: in words, and as the function that sets
// one in a T or returns an error.
type Kind[T any] struct {
	Allowed string
	Set     func(o *T, text string) error
}

// Checked returns a value that only set knows.
func Checked[T any](allowed string, set func(o *T, text string) error) Kind[T] {
	return Kind[T]{Allowed: allowed, Set: set}
}

const (
	wantDuration = "a duration such as 90s, 10m or 24h"
	wantCount    = "a whole number of 0 or more"
	wantBytes    = "a number of bytes such as 500M or 2GiB"
)

// ErrNotUnderstood says of a text no more than that.
var ErrNotUnderstood = errors.New("not understood")

// Text is any text.
func Text[T any](allowed string, at func(*T) *string) Kind[T] {
	return Kind[T]{allowed, func(o *T, s string) error { *at(o) = s; return nil }}
}

// Bool is true or false.
func Bool[T any](at func(*T) *bool) Kind[T] {
	return Kind[T]{"true or false", func(o *T, s string) (err error) {
		if *at(o), err = strconv.ParseBool(s); err != nil {
			return ErrNotUnderstood
		}
		return nil
	}}
}

// Duration returns a time from 0 on, with its unit.
func Duration[T any](at func(*T) *time.Duration) Kind[T] {
	return Kind[T]{wantDuration, func(o *T, s string) (err error) {
		*at(o), err = duration(s)
		return err
	}}
}

// DurationOrOff returns a time from 0 on, with its unit; off is 0.
func DurationOrOff[T any](at func(*T) *time.Duration) Kind[T] {
	k := Duration(at)
	return Kind[T]{wantDuration + ", or off", func(o *T, s string) error {
		if s == "off" {
			s = "0"
		}
		return k.Set(o, s)
	}}
}

// Positive returns a duration that cannot be switched off: 0 would be the default.
func Positive[T any](at func(*T) *time.Duration) Kind[T] {
	return Kind[T]{"a duration of more than 0, such as 90s", func(o *T, s string) error {
		d, err := duration(s)
		if *at(o) = d; err == nil && d == 0 {
			err = errors.New("zero")
		}
		return err
	}}
}

func duration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			return 0, errors.New("no unit")
		}
		return 0, ErrNotUnderstood
	}
	if d < 0 {
		return 0, errors.New("negative")
	}
	return d, nil
}

// Count returns a whole number of 0 or more.
func Count[T any, N ~int | ~uint64](at func(*T) *N) Kind[T] {
	return Kind[T]{wantCount, func(o *T, s string) error {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || N(n) < 0 {
			return ErrNotUnderstood
		}
		*at(o) = N(n)
		return nil
	}}
}

var bytesForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([kKMGT]?)(i?)B?$`)

// Bytes returns an amount of them.
func Bytes[T any](at func(*T) *int64) Kind[T] {
	return Kind[T]{wantBytes, func(o *T, s string) error {
		m := bytesForm.FindStringSubmatch(strings.TrimSpace(s))
		if m == nil || m[2] == "" && (m[3] != "" || strings.Contains(m[1], ".")) {
			return ErrNotUnderstood
		}
		v, err := strconv.ParseFloat(m[1], 64)
		unit := 1000.0
		if m[3] != "" {
			unit = 1024
		}
		for range strings.Index(" KMGT", strings.ToUpper(m[2] + " ")[:1]) {
			v *= unit
		}
		if err != nil || v >= 1<<62 {
			return errors.New("too large")
		}
		*at(o) = int64(v)
		return nil
	}}
}

var signalNames = map[string]os.Signal{
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP,
	"INT": syscall.SIGINT, "URG": syscall.SIGURG, "WINCH": syscall.SIGWINCH, "XCPU": syscall.SIGXCPU,
}

// Signals returns a list of signals by name; "none" is the empty list.
func Signals[T any](at func(*T) *[]os.Signal) Kind[T] {
	const allowed = "a list of USR1, USR2, TERM, HUP, INT, URG, WINCH, XCPU, or none"
	return Kind[T]{allowed, func(o *T, s string) error {
		out := []os.Signal{}
		for _, name := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }) {
			if strings.EqualFold(name, "none") {
				continue
			}
			sig, ok := signalNames[strings.TrimPrefix(strings.ToUpper(name), "SIG")]
			if !ok {
				return fmt.Errorf("unknown signal %q", name)
			}
			out = append(out, sig)
		}
		*at(o) = out
		return nil
	}}
}
