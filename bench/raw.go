package bench

import (
	"errors"
	"os"
)

// rawBlock is the number of bytes that WriteSync and ReadInto move in one call.
const rawBlock = 4 << 20

// WriteSync writes a file and calls fsync: the least that durable bytes cost without O_DIRECT.
func WriteSync(name string, data []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	for err == nil && len(data) > 0 {
		n := min(len(data), rawBlock)
		_, err = f.Write(data[:n])
		data = data[n:]
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ReadInto fills memory from a file, from an offset on: the least that reading costs.
func ReadInto(memory []byte, name string, from int64) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for off := 0; off < len(memory); off += rawBlock {
		if _, err := f.ReadAt(memory[off:min(off+rawBlock, len(memory))], from+int64(off)); err != nil {
			return err
		}
	}
	return nil
}
