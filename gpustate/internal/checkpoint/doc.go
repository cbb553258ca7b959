// Package checkpoint captures the objects of a device, restores them, and moves them to another device.
//
// # Terms
//
// A State is a device as this package sees it: the table of its objects, a Session, and the captures that may have
// bytes on it. A Session is a driver's device with copiers, which are queues and staging memory for transfers beside
// the program's. A Capture is the record and the bytes of one moment; the bytes lie in parts, in host memory or in a
// shadow, which is free device memory. A plan makes recorded objects on a device and gives them their bytes: those of
// a checkpoint for a restore, those of the device that the program leaves for a move.
//
// # Promises
//
// A capture does not change after it was taken, whatever the program does. Its shadow goes when the program needs the
// memory: the bytes come to the host then. Restore and Move check every object before they make the first one, and
// release the new objects when they fail. Nothing here decides when a device stops: the caller has stopped it, unless a
// method of Capture or Session says otherwise.
//
// The package knows the objects' record (package object) and the driver interface. It knows neither the program's
// objects nor its queues and events.
package checkpoint
