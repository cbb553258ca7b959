package driver

import (
	"errors"
	"strings"
)

// Unit is an OpenCL C source that is compiled by itself, with options of its own, and linked
// with others.
type Unit struct {
	Source  string
	Options string // of the compiler
}

// A linked text begins with linkedMark, and each unit with unitMark and its options in a line.
// The error keeps a compiler that knows neither from taking all units for one source.
const (
	linkedMark = "#error \"linked OpenCL sources, which holdfast splits before they are compiled\"\n"
	unitMark   = "//holdfast unit "
)

var oneLine = strings.NewReplacer("\n", " ", "\r", " ")

// ErrUnit is a source that cannot be told apart from the marks of a linked text.
var ErrUnit = errors.New("an OpenCL source with a line that begins with " + unitMark)

// JoinUnits returns the text of a program that is linked from several sources: it takes the place
// of ProgramDesc.OpenCL, whose Options are then those of the linker.
func JoinUnits(units []Unit) (string, error) {
	if len(units) == 0 {
		return "", errors.New("a program linked from no source")
	}
	var b strings.Builder
	b.WriteString(linkedMark)
	for _, u := range units {
		if strings.Contains("\n"+u.Source, "\n"+unitMark) || strings.Contains(u.Source, linkedMark) {
			return "", ErrUnit
		}
		b.WriteString(unitMark + oneLine.Replace(u.Options) + "\n" + u.Source)
		if !strings.HasSuffix(u.Source, "\n") {
			b.WriteString("\n")
		}
	}
	return b.String(), nil
}

// SplitUnits returns the sources of a linked text, each after the text before the first one; none of a text that is one
// source.
func SplitUnits(text string) (units []Unit) {
	before, rest, linked := strings.Cut(text, linkedMark+unitMark)
	if !linked || before != "" && !strings.HasSuffix(before, "\n") {
		return nil
	}
	for more := true; more; {
		var one string
		one, rest, more = strings.Cut(rest, "\n"+unitMark)
		if more {
			one += "\n"
		}
		options, source, _ := strings.Cut(one, "\n")
		units = append(units, Unit{Source: before + source, Options: options})
	}
	return units
}
