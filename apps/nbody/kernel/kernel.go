// Package kernel holds the device code of the N-body run, and the names to launch it by.
//
// # Layout
//
// Positions are float4 (x, y, z, mass), velocities and accelerations float4 with
// an unused fourth number, as in package bodies.
//
// # Order of summation
//
// A work item owns one body and adds the bodies of a block in ascending order,
// block after block. So on one kind of device the bits of a result depend on the
// blocks and their order, never on where a rank runs. The compiler contracts
// nothing; sums of products are fused where the device does that fast. Kinds of
// devices differ there and in the inverse square root.
package kernel

import (
	_ "embed"
	"fmt"

	"github.com/holdfast-hpc/holdfast/apps/internal/dialect"
)

// The kernels, with their arguments in order. Buffers are given with the type of
// their elements.
const (
	// Accelerate adds to acc the gravity of a block of other bodies on n bodies:
	//
	//	acc[i] += G Σ_j m[j] (x[j]-x[i]) / (|x[j]-x[i]|² + eps²)^(3/2)
	//
	// acc float4, pos float4, block float4, n int32, blockLen int32, g float32,
	// eps2 float32 (eps squared), fresh int32 (1 = start from zero, not from acc).
	// Bodies at one place do not act on each other if eps is 0. Launch with
	// Global(n) work items in groups of Group.
	Accelerate = "accelerate"

	// KickDrift does the first half of a leapfrog step, v += a dt/2, x += v dt:
	// pos float4, vel float4, acc float4, n int32, half float32 (dt/2), dt float32.
	// Launch with Global(n) work items in groups of Group, as Kick.
	KickDrift = "kick_drift"

	// Kick does the second half, v += a dt/2: vel float4, acc float4, n int32,
	// half float32.
	Kick = "kick"

	// Potential computes, for n bodies from first on, the sum over all others, in
	// their order and in double precision:
	//
	//	out[i] = Σ_j m[j] / sqrt(|x[j]-x[first+i]|² + eps²)
	//
	// out float64, all float4, n int32, first int32, count int32 (of all), eps2
	// float64 (eps squared). It is there on devices with double precision. Launch
	// with Global(n) work items in groups of Group.
	Potential = "potential"
)

// Group is the number of work items in a group. A group reads a tile of Group
// bodies into local memory together. (On an H200 an item that owns two or four
// bodies was slower; so it was on CPUs.)
const Group = 64

//go:embed nbody.cl
var text string

// Sources is the source for all devices.
var Sources = dialect.Sources(text)

// Options are the build options.
var Options = fmt.Sprintf("-DGROUP=%d", Group)

// Global returns the number of work items to launch for n bodies: n rounded up
// to whole groups, at least one.
func Global(n int) int { return max(1, (n+Group-1)/Group) * Group }
