package remote

import (
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// beat tells the server every now and then that this program lives, and gives the
// server up when nothing has come from it for longer than silence. It ends with
// the connection.
func (d *Device) beat(silence time.Duration) {
	var quiet wire.SilenceTimer
	wire.SendBeats(d.out, d.dead, func() (send, over bool) {
		if quiet.Look(d.input) > silence {
			d.abandon(fmt.Errorf("silent for %v: the server is stopped or unreachable", silence))
			return false, true
		}
		return true, false
	})
}
