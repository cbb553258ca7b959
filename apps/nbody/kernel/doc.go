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
