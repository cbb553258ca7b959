package vfs

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Kind is the file system of a directory.
type Kind struct {
	Name string // "ext4", "lustre"
	// Remote is set if other machines may see it, and if it may hang for seconds: all that
	// are not known to be a disk or memory of this machine.
	Remote bool
	Memory bool // its files are gone after a restart of the machine
}

// The numbers of file systems in statfs(2), with their properties.
var (
	localKinds = map[int64]string{
		0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x794c7630: "overlay", 0x2fc12fc1: "zfs",
		0xf2f52010: "f2fs", 0xca451a4e: "bcachefs", 0x3153464a: "jfs", 0x52654973: "reiserfs",
	}
	memoryKinds = map[int64]string{0x01021994: "tmpfs", 0x858458f6: "ramfs"}
	remoteKinds = map[int64]string{
		0x6969: "nfs", lustreMagic: Lustre, 0x47504653: "gpfs", 0x19830326: "beegfs", 0x65735546: "fuse",
		0x00c36400: "ceph", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x01021997: "9p", 0x20030528: "orangefs",
		0xaad7aaea: "panfs", 0x013661: "gfs2", 0x7461636f: "ocfs2",
	}
)

const lustreMagic = 0x0bd00bd0

// Lustre is the name of its Kind.
const Lustre = "lustre"

// KindOf returns the file system of a directory.
func KindOf(dir string) (Kind, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Kind{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return kindOf(int64(st.Type)), nil
}

func kindOf(magic int64) Kind {
	magic &= 1<<32 - 1 // some systems extend the sign
	if name := localKinds[magic]; name != "" {
		return Kind{Name: name}
	}
	if name := memoryKinds[magic]; name != "" {
		return Kind{Name: name, Memory: true}
	}
	if name := remoteKinds[magic]; name != "" {
		return Kind{Name: name, Remote: true}
	}
	return Kind{Name: fmt.Sprintf("file system %#x", magic), Remote: true}
}

// Remote returns the remote of the Kind of a directory; true if the kind is not known.
func (OS) Remote(dir string) bool {
	k, err := KindOf(dir)
	return err != nil || k.Remote
}
