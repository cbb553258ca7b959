package verb

import (
	"fmt"
	"strconv"
)

// Processes are those that a command is given by their numbers.
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
