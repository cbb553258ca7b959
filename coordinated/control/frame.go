package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A frame is a kind, a little-endian length and that many bytes.
const (
	frameHeader = 5
	maxFrame    = 64 << 20 // a manifest of 100,000 ranks takes some 5 MB

	frameData      = 1
	frameHeartbeat = 2
	frameGoodbye   = 3
)

// errFrame marks bytes that are no frame.
var errFrame = errors.New("malformed control frame")

func appendFrame(b []byte, kind byte, payload []byte) []byte {
	b = append(b, kind)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

func readFrame(r io.Reader) (kind byte, payload []byte, err error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(h[1:])
	if h[0] < frameData || h[0] > frameGoodbye || n > maxFrame || (h[0] != frameData && n != 0) {
		return 0, nil, fmt.Errorf("%w: kind %d, %d bytes", errFrame, h[0], n)
	}
	if n == 0 {
		return h[0], nil, nil
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, fmt.Errorf("%w: truncated: %w", errFrame, err)
	}
	return h[0], payload, nil
}
