// Package kernel holds the device code of the distributed transpose. Elements are uint32,
// matrices row-major.
package kernel
