package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// ArenaBytes is the memory of all slots of a client.
const ArenaBytes = Slots * SlotBytes

// MaxRegions bounds the pieces of memory that one client shares.
const MaxRegions = 4096

// grantBytes is the length of a message with a file descriptor: a number and a size.
const grantBytes = 16

// Grant passes memory of package shm to the server under a number.
func Grant(c *net.UnixConn, f *os.File, number uint64, bytes int) error {
	b := binary.LittleEndian.AppendUint64(nil, number)
	b = binary.LittleEndian.AppendUint64(b, uint64(bytes))
	if _, _, err := c.WriteMsgUnix(b, unix.UnixRights(int(f.Fd())), nil); err != nil {
		return fmt.Errorf("pass shared memory: %w", err)
	}
	return nil
}

// Accept returns the server's side of Grant; it maps the memory. Of a file that
// another process can shrink it takes nothing.
func Accept(c *net.UnixConn) (number uint64, b []byte, err error) {
	msg, oob := make([]byte, grantBytes), make([]byte, unix.CmsgSpace(4*8))
	n, oobn, _, _, err := c.ReadMsgUnix(msg, oob)
	if err != nil {
		return 0, nil, err
	}
	files, err := shm.Files(oob[:oobn])
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	if err != nil || n != grantBytes || len(files) != 1 {
		return 0, nil, fmt.Errorf("%w: no shared memory", ErrProtocol)
	}
	if b, err = shm.Map(files[0]); errors.Is(err, shm.ErrSize) {
		err = fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if err == nil && binary.LittleEndian.Uint64(msg[8:]) != uint64(len(b)) {
		return 0, nil, errors.Join(fmt.Errorf("%w: shared memory of another size", ErrProtocol), shm.Free(b))
	}
	return binary.LittleEndian.Uint64(msg), b, err
}
