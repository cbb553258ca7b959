package apps

import (
	"fmt"
	"slices"
)

// Names are the applications, in order.
func Names() []string {
	var names []string
	for _, a := range apps {
		names = append(names, a.name)
	}
	return names
}

// Arguments are the flags that give an application so much work, see Options, and
// what its result file is called. They may write input to dir.
func Arguments(name string, work float64, big bool, dir string) (args []string, out string, err error) {
	i := slices.IndexFunc(apps, func(a app) bool { return a.name == name })
	if i < 0 {
		return nil, "", fmt.Errorf("there is no application %q", name)
	}
	args, err = apps[i].args(work, big, dir)
	return args, apps[i].out, err
}
