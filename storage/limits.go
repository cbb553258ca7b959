package storage

import (
	"fmt"
	"math"
)

// LimitError reports something larger than the format can hold. Nothing was
// written.
type LimitError struct {
	What       string
	Have, Most int64
	Remedy     string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d, at most %d can be read back: %s", e.What, e.Have, e.Most, e.Remedy)
}

// maxNameLen bounds the name of a section, a job, a node.
const maxNameLen = math.MaxUint16

// fits says why a shard could not be read back. It is asked before anything is
// written; writeShard decodes the index on top of it, which has the last word.
func (p *shardSpec) fits() error {
	const remedy = "use more ranks, or protect less on each"
	bytes, chunks, index := int64(0), int64(0), int64(recordExtra+28)
	for i := range p.sections {
		sec := &p.sections[i]
		if len(sec.Name) > maxNameLen {
			return &LimitError{What: "length of a section's name", Have: int64(len(sec.Name)), Most: maxNameLen,
				Remedy: "give it a shorter name"}
		}
		if sec.Size < 0 {
			return fmt.Errorf("section %q has %d bytes", sec.Name, sec.Size)
		}
		if bytes += sec.Size; bytes < 0 || sec.Size > maxShardBytes || bytes > maxShardBytes {
			return &LimitError{What: fmt.Sprintf("bytes of a shard, with section %q", sec.Name), Have: sec.Size,
				Most: maxShardBytes, Remedy: remedy}
		}
		chunks += chunkCount(sec.Size, chunkBytes)
		index += 10 + int64(len(sec.Name))
	}
	if index += chunks * chunkEntryLen; index > maxRecordLen {
		most := (maxRecordLen - (index - chunks*chunkEntryLen)) / chunkEntryLen * chunkBytes
		if most < 0 { // names alone are too much
			return &LimitError{What: "bytes of the names of all sections", Have: index - chunks*chunkEntryLen,
				Most: maxRecordLen, Remedy: "protect fewer things with shorter names"}
		}
		return &LimitError{What: "bytes of a shard", Have: bytes, Most: most, Remedy: remedy}
	}
	return nil
}

// maxShardBytes bounds the sum of a shard's sections, far above what an index
// can hold, so that sums do not overflow.
const maxShardBytes = 1 << 60

// readable makes sure that a manifest can be read back: it decodes it.
func (m *manifest) readable() ([]byte, error) {
	for i := range m.shards {
		for _, name := range append([]string{m.shards[i].Node}, m.shards[i].Holders...) {
			if len(name) > maxNameLen {
				return nil, &LimitError{What: fmt.Sprintf("length of the name of rank %d's node", i),
					Have: int64(len(name)), Most: maxNameLen, Remedy: "give it a shorter name"}
			}
		}
	}
	b := m.encode()
	if len(b) > maxRecordLen {
		return nil, &LimitError{What: fmt.Sprintf("bytes of the manifest of %d ranks", m.size), Have: int64(len(b)),
			Most: maxRecordLen, Remedy: "use fewer ranks"}
	}
	if _, err := decodeManifest(manifestName, b); err != nil {
		return nil, fmt.Errorf("the manifest could not be read back: %w", err)
	}
	return b, nil
}
