package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// probeBytes is how much is written to measure a directory.
const probeBytes = 64 << 20

func lookDirectories(ctx context.Context, r *report) {
	local := r.directory(ctx, "local", r.Local)
	if storage.IsObjectStore(r.Global) {
		r.store(ctx)
		return
	}
	global := r.directory(ctx, "global", r.Global)
	switch {
	case r.Local == "" && r.Global == "" && r.Config != nil: // which says so
		return
	case r.Off != "":
		r.add("directories", "any", Note, "programs run without checkpoints: "+r.Off, "")
		return
	case r.Local == "" && r.Global == "":
		r.add("directories", "any", Failed, "neither local nor global is set",
			"set HOLDFAST_LOCAL, HOLDFAST_GLOBAL or both")
		return
	case local == nil || global == nil:
		return
	}
	if local.kind.Remote {
		r.add("directories", "local", Warning, fmt.Sprintf("%s is on %s, which is not a disk of the node", r.Local,
			local.kind.Name),
			"set local to a directory on the node's own disk, such as one below /scratch or $TMPDIR")
	}
	if local.device == global.device {
		r.add("directories", "global", Warning, "local and global are on one file system: whatever takes one "+
			"takes both",
			"set global to a directory on the parallel file system")
	}
}

// storeBytes is how much is put into an object store to measure it.
const storeBytes = 32 << 20

func (r *report) store(ctx context.Context) {
	m, err := storage.MeasureStore(ctx, r.Global, storeBytes)
	if err != nil {
		r.add("directories", "global", Failed, err.Error(), "see the message; the store is found by "+
			"AWS_ENDPOINT_URL_S3, AWS_REGION and the credentials of this user")
		return
	}
	r.add("directories", "global", OK, fmt.Sprintf("%s: %.3f GB/s written and %.3f GB/s read by one process, %v for a "+
		"small request; conditional puts work", r.Global, m.Write/1e9, m.Read/1e9, m.Reply.Round(time.Microsecond)), "")
	if m.Reply > slowReply {
		r.add("directories", "global: replies", Warning, fmt.Sprintf("a small request takes %v",
			m.Reply.Round(time.Millisecond)), "a restart makes some ten of them one after the other; use a store "+
			"that is nearer")
	}
	if r.Local == "" {
		r.add("directories", "local", Failed, "not set, and global is an object store", "set HOLDFAST_LOCAL: epochs "+
			"are written there first")
	}
}

// slowReply is more than a store in the same data centre takes.
const slowReply = 300 * time.Millisecond

// probed is the knowledge of a directory.
type probed struct {
	kind        vfs.Kind
	device      uint64
	free, total float64 // bytes
}

// directory looks at one directory; nil if there is nothing to compare.
func (r *report) directory(ctx context.Context, level, dir string) *probed {
	if dir == "" {
		r.add("directories", level, Skipped, "not set", "")
		return nil
	}
	p := r.usable(level, dir)
	if p == nil {
		return nil
	}
	if r.Note != nil {
		r.Note("directories: the rates of " + level)
	}
	rate, err := measure(dir)
	if err != nil {
		r.add("directories", level, Failed, fmt.Sprintf("%s: %v", dir, err),
			"the directory must be writable, with some space")
		return nil
	}
	r.add("directories", level, OK, fmt.Sprintf("%s on %s: writes %.2f GB/s, synced; reads %.2f GB/s", dir, p.kind.Name,
		rate.Write/1e9, rate.Read/1e9), "")
	if p.kind.Name == vfs.Lustre {
		r.lustre(ctx, level, dir)
	}
	r.space(level, p.free, p.total)
	switch {
	case p.kind.Memory:
		r.add("directories", level, Warning, "it is in memory: checkpoints are lost when the node restarts, and take "+
			"its memory",
			"use a disk, or protect the shards on other nodes (redundancy)")
	case rate.Direct:
		r.add("directories", level+": O_DIRECT", OK, "writes bypass the page cache", "")
	default:
		r.add("directories", level+": O_DIRECT", Note, "refused: writes go through the page cache, which is slower",
			"ext4, xfs and Lustre would allow it")
	}
	return p
}

// usable returns the knowledge of a directory that a level can be in; nil if it cannot.
func (r *report) usable(level, dir string) *probed {
	if err := storage.CheckDir(dir); err != nil {
		r.add("directories", level, Failed, err.Error(), "correct the "+level+" directory of the configuration")
		return nil
	}
	var fs unix.Statfs_t
	var st unix.Stat_t
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.add("directories", level, Failed, dir+" does not exist, and a job does not create it", "mkdir -p "+dir+
			", on every node, before the job starts")
		return nil
	case err == nil && !info.IsDir():
		err = errors.New("not a directory")
	case err == nil:
		err = errors.Join(unix.Statfs(dir, &fs), unix.Stat(dir, &st))
	}
	if err != nil {
		r.add("directories", level, Failed, fmt.Sprintf("%s: %v", dir, err),
			"name a directory that this user can write to")
		return nil
	}
	if err := (vfs.OS{}).CheckDir(dir, true); err != nil {
		r.add("directories", level+": owner", Failed, err.Error(), "use a directory of your own that nobody else can "+
			"write to")
	}
	p := &probed{device: uint64(st.Dev), free: float64(fs.Bavail) * float64(fs.Bsize),
		total: float64(fs.Blocks) * float64(fs.Bsize)}
	kindOf := r.kindOf
	if kindOf == nil {
		kindOf = vfs.KindOf
	}
	if p.kind, err = kindOf(dir); err != nil {
		r.add("directories", level, Failed, err.Error(), "name a directory of a file system that answers")
		return nil
	}
	return p
}

func (r *report) space(level string, free, total float64) {
	detail := fmt.Sprintf("%.1f GB free of %.1f GB", free/1e9, total/1e9)
	if free < 0.05*total || free < 1e9 {
		r.add("directories", level+": space", Warning, detail, "leave room for at least three checkpoints; 'holdfast "+
			"prune' removes old ones")
		return
	}
	r.add("directories", level+": space", OK, detail, "")
}

// aligned returns memory that direct writes take.
func aligned(n int) []byte {
	b := make([]byte, n+vfs.Align)
	off := int(-uintptr(unsafe.Pointer(&b[0])) & (vfs.Align - 1))
	return b[off : off+n]
}
