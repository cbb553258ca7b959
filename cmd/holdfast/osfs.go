package main

import (
	"os"
	"strconv"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// osFS is the operating system's file system as the tool uses it: with what the
// user trusts.
func osFS() vfs.OS {
	allow, _ := strconv.ParseBool(os.Getenv("HOLDFAST_ALLOW_FOREIGN"))
	return vfs.OS{AllowForeign: allow}
}
