// Package mailbox keeps messages that were drained and that the program has not received: in
// memory, and in a checkpoint.
//
// A Box holds those of one communicator, in the order in which they were matched. A Mail has all boxes of a rank for a
// checkpoint, with the receives that were pending and not protected. After a restart, Unposted knows which of those the
// program has not posted again.
//
// Nothing here locks: the rank that has the boxes does. Nothing here knows of requests.
package mailbox
