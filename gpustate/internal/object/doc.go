// Package object keeps the records of the objects on one device.
//
// # Terms
//
// An Entry is one object: its record, as a checkpoint holds it, and its handle on the device that there is now. A
// Kernel is the entry of a kernel with its arguments. A Table lists the entries of a device and finds them by name
// or, without one, by the order in which the program asks for them. An Area is the part of a memory object that a
// command reads or writes. A Target is a device that is to have objects.
//
// # Promises
//
// A Table never gives two live objects one key. ErrIdentity names objects that a restart could not tell apart. An
// object that others are made from stays until they are released. A refused argument keeps its value. A Target refuses
// an object that its device cannot hold before anything is made.
//
// Nothing here takes a device's lock or waits for a command, and a failed call changes nothing. The package knows the
// driver interface and the record; it knows neither the program's objects (see Entry.Public) nor checkpoints.
package object
