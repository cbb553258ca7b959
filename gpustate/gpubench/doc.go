// Package gpubench measures what gpustate costs on a device: how long a capture
// keeps the program waiting and how long it takes in all, how fast a restore
// is, what recording adds to a call and what a command window costs. Each
// figure stands beside a baseline that is measured in the same run: the rate of
// pinned copies, the rate of copies within the device, the driver's own
// checkpoint.
package gpubench
