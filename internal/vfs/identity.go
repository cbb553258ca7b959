package vfs

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
)

// An Identifier is an FS that tells directories apart; see Identity.
type Identifier interface {
	Identity(dir string) string
}

// Identity returns the same for two processes if dir leads both to the same directory, whatever its path, and differs
// if it does not. It is empty if that cannot be told, and holds for as long as the directory and the machine's
// system live.
func Identity(fsys FS, dir string) string {
	if i, ok := fsys.(Identifier); ok {
		return i.Identity(dir)
	}
	return ""
}

// bootID names this start of the machine's system, which numbers its file systems.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// Identity makes OS an Identifier. Processes on two machines never share an identity, even if both see the
// directory.
func (OS) Identity(dir string) string {
	info, err := os.Stat(dir)
	if err != nil || bootID() == "" {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s %d %d", bootID(), st.Dev, st.Ino)
}
