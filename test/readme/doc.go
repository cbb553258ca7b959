// Package readme holds the pages to what they say. The first commands of the README do it; its lines of Go are those of
// the example that test/examples runs. The command has the verbs and flags that pages name, the sources have the
// variables and messages, and links lead to headings. The site of the documentation is made and looked at.
package readme
