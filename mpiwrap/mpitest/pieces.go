package mpitest

import "github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"

// SmallPieces makes short messages of device memory go as large ones do: from large bytes on, in
// pieces of slot bytes (a multiple of 4096), through memory of so many slots. It is for a whole
// test binary, before its first message.
func SmallPieces(large, slot, slots int) {
	devmsg.LargeBytes, devmsg.SlotBytes, devmsg.SlabSlots, devmsg.MostBytes = large, slot, slots, 2*slots*slot
}
