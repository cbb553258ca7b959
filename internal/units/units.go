// Package units writes amounts for people.
package units

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bytes writes a number of bytes with three digits and a binary unit: 2.0 GiB.
func Bytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, u := float64(n)/1024, 0
	for v >= 1023.5 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	prec := 0
	if v < 99.5 {
		prec = 1
	}
	return strconv.FormatFloat(v, 'f', prec, 64) + " " + units[u:u+1] + "iB"
}

// Count returns a number of things: 1 rank, 2 ranks.
func Count(n int, what string) string { return strconv.Itoa(n) + " " + Plural(n, what) }

// Plural returns the word what, in the plural unless n is 1.
func Plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

// Cut shortens a text to n bytes, an ellipsis behind its last whole word among them.
func Cut(text string, n int) string {
	const ellipsis = " …"
	if len(text) <= n {
		return text
	}
	end := max(0, n-len(ellipsis))
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	if space := strings.LastIndexByte(text[:end], ' '); space > end/2 && text[end] != ' ' {
		end = space
	}
	return text[:end] + ellipsis
}
