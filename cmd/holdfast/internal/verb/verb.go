// Package verb has the common parts of holdfast's verbs: the directories and the settings that they are given, and
// their help.
package verb

import (
	"embed"
	"fmt"
	"strconv"
	"strings"

	_ "github.com/holdfast-hpc/holdfast/storage/parity" // parity of the checkpoints of programs in other languages
	_ "github.com/holdfast-hpc/holdfast/storage/s3"     // checkpoints in object stores
)

// Help has the help of verbs, of the files help/VERB.txt that a package of them embeds.
func Help(texts embed.FS) func(verb string) string {
	return func(verb string) string {
		text, err := texts.ReadFile("help/" + verb + ".txt")
		if err != nil {
			panic(err) // every verb has one
		}
		return strings.TrimSpace(string(text))
	}
}

// Processes returns those that a command is given by their numbers.
func Processes(args []string) ([]int, error) {
	pids := make([]int, len(args))
	for i, a := range args {
		var err error
		if pids[i], err = strconv.Atoi(a); err != nil || pids[i] <= 0 {
			return nil, fmt.Errorf("%q is no process ID", a)
		}
	}
	return pids, nil
}
