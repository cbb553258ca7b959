package apps

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
	a, err := find(name)
	if err != nil {
		return nil, "", err
	}
	args, err = a.args(work, big, dir)
	return args, a.out, err
}
