package wire

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ArenaBytes is the memory of all slots of a client.
const ArenaBytes = Slots * SlotBytes

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// ShareArena makes memory for the slots and passes it to the server through a
// Unix socket.
func ShareArena(c *net.UnixConn) ([]byte, error) {
	fd, err := unix.MemfdCreate("holdfast-slots", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make shared memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "holdfast-slots")
	defer f.Close()
	if err := f.Truncate(ArenaBytes); err != nil {
		return nil, fmt.Errorf("make %d bytes of shared memory: %w", ArenaBytes, err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal shared memory: %w", err)
	}
	b, err := mapArena(f)
	if err != nil {
		return nil, err
	}
	if _, _, err := c.WriteMsgUnix([]byte{'M'}, unix.UnixRights(int(f.Fd())), nil); err != nil {
		return nil, errors.Join(fmt.Errorf("pass shared memory: %w", err), unix.Munmap(b))
	}
	return b, nil
}

// TakeArena is the server's side of ShareArena. The memory cannot shrink any
// more: reading it is safe whatever the client does.
func TakeArena(c *net.UnixConn) ([]byte, error) {
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*8))
	n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, fmt.Errorf("take shared memory: %w", err)
	}
	files, err := rights(oob[:oobn])
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	if err != nil || n != 1 || b[0] != 'M' || len(files) != 1 {
		return nil, fmt.Errorf("%w: no shared memory", ErrProtocol)
	}
	info, err := files[0].Stat()
	if err != nil || info.Size() != ArenaBytes {
		return nil, fmt.Errorf("%w: shared memory of another size", ErrProtocol)
	}
	have, err := unix.FcntlInt(files[0].Fd(), unix.F_GET_SEALS, 0)
	if err != nil || have&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("%w: shared memory that can shrink", ErrProtocol)
	}
	return mapArena(files[0])
}

func rights(oob []byte) (files []*os.File, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "shared memory"))
		}
	}
	return files, nil
}

func mapArena(f *os.File) ([]byte, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, ArenaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory: %w", err)
	}
	return b, nil
}

// FreeArena unmaps what ShareArena or TakeArena gave.
func FreeArena(b []byte) error {
	if b == nil {
		return nil
	}
	return unix.Munmap(b)
}
