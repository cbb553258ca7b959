package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ArenaBytes is the memory of all slots of a client.
const ArenaBytes = Slots * SlotBytes

// MaxRegions bounds the pieces of memory that one client shares.
const MaxRegions = 4096

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// NewShared makes memory that another process can map. It cannot shrink or grow:
// who maps it can read it whatever others do.
func NewShared(bytes int) (f *os.File, b []byte, err error) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil && uint64(bytes) > limit.Cur {
		// making it would end the process with SIGXFSZ
		return nil, nil, fmt.Errorf("make %d bytes of shared memory: files have at most %d (ulimit -f): %w", bytes,
			limit.Cur, unix.EFBIG)
	}
	fd, err := unix.MemfdCreate("holdfast", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("make shared memory: %w", err)
	}
	f = os.NewFile(uintptr(fd), "shared memory")
	if err = f.Truncate(int64(bytes)); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	}
	if err == nil {
		b, err = mapShared(f, bytes)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make %d bytes of shared memory: %w", bytes, err), f.Close())
	}
	return f, b, nil
}

func mapShared(f *os.File, bytes int) ([]byte, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", bytes, err)
	}
	return b, nil
}

// hugeBytes is the size of a huge page.
const hugeBytes = 2 << 20

// Collapse makes memory of NewShared of huge pages, as far as there are any: they
// take a tenth of the time to make, and copies are a quarter faster. Kernels that
// give shared memory none at its first use, which is their default, do it when
// asked (Linux 6.1). What is not whole huge pages stays as it is. An error says
// that there is too little memory.
func Collapse(b []byte) error {
	if skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % hugeBytes); skip < len(b) {
		b = b[skip:]
	}
	for ; len(b) >= hugeBytes; b = b[hugeBytes:] {
		// one page has to be there
		if err := unix.Madvise(b[:1], unix.MADV_POPULATE_WRITE); errors.Is(err, unix.EINVAL) {
			return nil // before Linux 5.14
		} else if err != nil {
			return err
		}
		if unix.Madvise(b[:hugeBytes], unix.MADV_COLLAPSE) != nil {
			return nil
		}
	}
	return nil
}

// FreeShared unmaps shared memory, if there is any.
func FreeShared(b []byte) error {
	if b == nil {
		return nil
	}
	return unix.Munmap(b)
}

// grantBytes is what carries a file descriptor: a number and a size.
const grantBytes = 16

// Grant passes memory of NewShared to the server under a number.
func Grant(c *net.UnixConn, f *os.File, number uint64, bytes int) error {
	b := binary.LittleEndian.AppendUint64(nil, number)
	b = binary.LittleEndian.AppendUint64(b, uint64(bytes))
	if _, _, err := c.WriteMsgUnix(b, unix.UnixRights(int(f.Fd())), nil); err != nil {
		return fmt.Errorf("pass shared memory: %w", err)
	}
	return nil
}

// Accept is the server's side of Grant; it maps the memory. Of a file that
// another process can shrink it takes nothing.
func Accept(c *net.UnixConn) (number uint64, b []byte, err error) {
	msg, oob := make([]byte, grantBytes), make([]byte, unix.CmsgSpace(4*8))
	n, oobn, _, _, err := c.ReadMsgUnix(msg, oob)
	if err != nil {
		return 0, nil, err
	}
	files, err := Rights(oob[:oobn])
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	if err != nil || n != grantBytes || len(files) != 1 {
		return 0, nil, fmt.Errorf("%w: no shared memory", ErrProtocol)
	}
	bytes := binary.LittleEndian.Uint64(msg[8:])
	info, err := files[0].Stat()
	if err != nil || bytes == 0 || uint64(info.Size()) != bytes {
		return 0, nil, fmt.Errorf("%w: shared memory of another size", ErrProtocol)
	}
	have, err := unix.FcntlInt(files[0].Fd(), unix.F_GET_SEALS, 0)
	if err != nil || have&unix.F_SEAL_SHRINK == 0 {
		return 0, nil, fmt.Errorf("%w: shared memory that can shrink", ErrProtocol)
	}
	b, err = mapShared(files[0], int(bytes))
	return binary.LittleEndian.Uint64(msg), b, err
}

// Rights are the files that came with a message.
func Rights(oob []byte) (files []*os.File, err error) {
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
			files = append(files, os.NewFile(uintptr(fd), "passed file"))
		}
	}
	return files, nil
}
