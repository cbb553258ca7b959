package export

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/storage"
)

// pickItem finds a section of the shard, or an item in one, by its name.
func pickItem(name string, sh *storage.Shard, items []coordinated.Saved) (*coordinated.Saved, error) {
	var found []*coordinated.Saved
	var near []string
	for i := range items {
		if items[i].Name == name {
			found = append(found, &items[i])
		}
		near = append(near, items[i].Name)
	}
	for _, s := range sh.Sections() {
		if s.Name == name && len(found) == 0 {
			return &coordinated.Saved{Name: name, Bytes: s.Size, Section: name}, nil
		}
	}
	switch len(found) {
	case 0:
		slices.Sort(near)
		if len(near) > 12 {
			near = append(near[:12], "...")
		}
		return nil, fmt.Errorf("has no section %q; it has %s", name, strings.Join(near, ", "))
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("has %d things of the name %q; name one by its section, such as %s", len(found), name,
		found[0].Section)
}

// pieceBytes is how much is read at once, by several goroutines.
const pieceBytes = 8 << 20

// itemReader reads something that a shard holds, verified.
type itemReader struct {
	ctx    context.Context
	sh     *storage.Shard
	item   *coordinated.Saved
	at     int64
	copied *atomic.Int64
}

func (r *itemReader) Read(p []byte) (int, error) {
	n := min(int64(len(p)), r.item.Bytes-r.at)
	if n == 0 {
		return 0, io.EOF
	}
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if err := r.sh.ReadAt(r.ctx, r.item.Section, p[:n], r.item.Off+r.at); err != nil {
		return 0, err
	}
	r.at += n
	r.copied.Add(n)
	return int(n), nil
}
