package coordinated

import (
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// FromSource is a device program that was built from source, because the device did
// not load its binary.
type FromSource struct {
	Device string // the name that the device is protected under
	gpustate.SourceBuild
}

// fromSource lists such programs of all protected devices, and logs those that were not
// logged before. It runs on the main thread.
func (c *Checkpointer) fromSource() (list []FromSource) {
	for _, d := range c.state.Devices() {
		for _, s := range d.BuiltFromSource() {
			list = append(list, FromSource{d.Name, s})
			c.sayFromSource(list[len(list)-1])
		}
	}
	return list
}

func (c *Checkpointer) sayFromSource(f FromSource) {
	key := f.Device + "\x00" + f.Program + "\x00" + f.Why
	if c.main.said[key] {
		return
	}
	c.main.said[key] = true
	kernels := strings.Join(f.Kernels, ",")
	c.log.Warn("holdfast: a device program was built from source, because its binary did not load",
		"device", f.Device, "program", f.Program, "kernels", kernels, "why", f.Why)
	c.record.events.Emit(events.Event{Name: events.Source, What: f.Device + "/" + f.Program, Text: "kernels " +
		kernels + ": " + f.Why})
}
