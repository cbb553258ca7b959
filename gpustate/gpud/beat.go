package gpud

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// heedful is how long a client may be unheard of and still be told that the
// server lives.
const heedful = 3 * wire.BeatEvery

// beat tells the client that the server lives, whatever the reading goroutine
// does, and drops a client of which nothing was heard for host.frozen. A client
// that waits for a long command is heard of; one that is stopped is not.
func (c *client) beat(stop <-chan struct{}) {
	var quiet wire.Quiet
	wire.SendBeats(c.out, stop, func() (send, over bool) {
		if !c.ear.Listening() {
			c.ear.Heard() // a long call holds the reader up: nothing can be heard
		}
		silent := quiet.Look(&c.ear)
		if c.h.frozen > 0 && silent > c.h.frozen {
			c.h.log.Warn("client dropped", "id", c.ID, "err", "it has said nothing for "+c.h.frozen.String())
			go c.dismiss(fmt.Sprintf("the program has said nothing for %v", c.h.frozen))
			return false, true
		}
		return silent <= heedful, false
	})
}
