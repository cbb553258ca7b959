// Package format is what lies on the disk, as docs/FORMAT.md describes it: records, shards with their index and
// chunks, manifests, packs, parity groups, and the small files of a job. It turns values into bytes and bytes back into
// values, which it has then checked; it opens no file and reads no clock.
package format
