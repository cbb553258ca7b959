package main

import (
	"embed"
	"strings"
)

//go:embed help
var helpTexts embed.FS

// help has the text of a verb.
func help(verb string) string {
	text, err := helpTexts.ReadFile("help/" + verb + ".txt")
	if err != nil {
		panic(err) // every verb that asks has one
	}
	return strings.TrimSpace(string(text))
}
