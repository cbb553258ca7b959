package cl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// link compiles sources one by one and links them.
func (d *device) link(units []driver.Unit, options string) (h handle, log string, err error) {
	var objects []handle
	defer func() {
		for _, o := range objects {
			err = errors.Join(err, releaseProgram(o))
		}
	}()
	for i, u := range units {
		o, words, err := d.compile(u)
		log += words
		if err != nil {
			return 0, log, fmt.Errorf("source %d of %d: %w", i+1, len(units), err)
		}
		objects = append(objects, o)
	}
	h, err = linkProgram(d.ctx, d.device, options, objects)
	if h != 0 {
		log += buildLog(h, d.device)
	}
	if err != nil && h != 0 {
		err = firstError(err, releaseProgram(h))
	}
	return h, log, err
}

// compile gives an object; a source that does not compile leaves none.
func (d *device) compile(u driver.Unit) (h handle, log string, err error) {
	if h, err = programFromSource(d.ctx, u.Source); err != nil {
		return 0, "", err
	}
	err = compileProgram(h, d.device, u.Options)
	log = buildLog(h, d.device)
	if err != nil {
		err = firstError(err, releaseProgram(h))
	}
	return h, log, err
}

// linkedVariables is variables of all sources.
func linkedVariables(units []driver.Unit) (names []string, whole bool) {
	whole = true
	for _, u := range units {
		more, all := variables(u.Source, u.Options)
		names, whole = append(names, more...), whole && all
	}
	slices.Sort(names)
	return slices.Compact(names), whole
}
