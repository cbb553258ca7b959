package node

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/storage"
	"golang.org/x/sys/unix"
)

// asked is what a rank wants of checkpoints with a name, in the order of its bytes for the others.
type asked struct {
	Call    uint16 // a wire.Type
	Gone    bool   // the directories of the name were removed on this rank's node
	Version int64
	Name    [16]byte // a digest
}

// said names a request about checkpoints for the user.
func said(m wire.Message) string {
	switch {
	case m.Type == wire.TypeFind:
		return fmt.Sprintf("the search for a checkpoint %q", m.Text)
	case m.Type == wire.TypeBegin:
		return fmt.Sprintf("the restart from checkpoint %q, version %d", m.Text, m.Version)
	case m.Version < 0:
		return fmt.Sprintf("checkpoint %q", m.Text)
	}
	return fmt.Sprintf("checkpoint %q, version %d", m.Text, m.Version)
}

// agree waits until all ranks have made a request about checkpoints with a name. It fails on all of them unless it is
// the same request, and every rank has its part. Gone says that directories of the name were removed somewhere.
// Collective.
func (s *session) agree(m wire.Message) (gone bool, err error) {
	mine := asked{Call: uint16(m.Type), Gone: s.lacksDirs(m.Text), Version: m.Version}
	sum := sha256.Sum256([]byte(m.Text))
	copy(mine.Name[:], sum[:])
	b, err := binary.Append(nil, binary.LittleEndian, &mine)
	if err != nil {
		return false, err
	}
	blobs := make([]byte, s.rank.size*len(b))
	if err := s.ck.Gather(said(m), blobs, b); err != nil {
		return false, err
	}
	all := make([]asked, s.rank.size)
	if _, err := binary.Decode(blobs, binary.LittleEndian, all); err != nil {
		return false, err
	}
	first := all[0]
	other := func(differs func(a asked) bool) (r int, found bool) {
		r = slices.IndexFunc(all, differs)
		return r, r >= 0
	}
	if r, found := other(func(a asked) bool { return a.Call != first.Call || a.Name != first.Name }); found {
		texts, err := s.texts(said(m), said(m))
		if err != nil {
			return false, err
		}
		return false, fmt.Errorf("rank 0 asks for %s, and rank %d for %s: all ranks must make the same call, with the "+
			"same name", texts[0], r, texts[r])
	}
	if r, found := other(func(a asked) bool { return a.Version < 0 && m.Type == wire.TypeSave }); found {
		return false, fmt.Errorf("rank %d gives version %d of checkpoint %q, which says that it has not saved its "+
			"part: no checkpoint is taken", r, all[r].Version, m.Text)
	}
	if r, found := other(func(a asked) bool { return a.Version != first.Version }); found {
		return false, fmt.Errorf("rank 0 gives version %d of checkpoint %q, and rank %d version %d: all ranks must "+
			"give the same", first.Version, m.Text, r, all[r].Version)
	}
	return slices.ContainsFunc(all, func(a asked) bool { return a.Gone }), nil
}

// texts gathers a text of each rank, up to a length, during a call. Collective.
func (s *session) texts(call, mine string) (all []string, err error) {
	const most = wire.NameBytes + 300
	b, blobs := make([]byte, most), make([]byte, s.rank.size*most)
	copy(b, mine)
	if err := s.ck.Gather(call, blobs, b); err != nil {
		return nil, err
	}
	for one := range slices.Chunk(blobs, most) {
		all = append(all, strings.TrimRight(string(one), "\x00"))
	}
	return all, nil
}

// namedDir is a directory of checkpoints with a name.
type namedDir struct {
	path  string
	above uint64 // the file system of the directory above, when it was opened
}

// dirsOf are the directories that this rank looks after: its local one, and at rank 0 the global one.
func dirsOf(o coordinated.Options, rank int) (dirs []namedDir) {
	if o.Local != "" {
		dirs = append(dirs, namedDir{o.Local, fileSystem(filepath.Dir(o.Local))})
	}
	if rank == 0 && o.Global != "" && !storage.IsObjectStore(o.Global) {
		dirs = append(dirs, namedDir{o.Global, fileSystem(filepath.Dir(o.Global))})
	}
	return dirs
}

// fileSystem identifies that of a directory; 0: it cannot be asked.
func fileSystem(dir string) uint64 {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return 0
	}
	return uint64(st.Dev)
}

// lacksDirs says that directories of an open name were removed, and only they: those above are on the same file system
// as before, and not below an empty mount point, where nothing must be written.
func (s *session) lacksDirs(name string) bool {
	i := slices.IndexFunc(s.named, func(n *named) bool { return n.name == name })
	if i < 0 || s.named[i].ck == nil {
		return false
	}
	return slices.ContainsFunc(s.named[i].dirs, func(d namedDir) bool {
		_, err := os.Stat(filepath.Join(d.path, "holdfast.job"))
		return errors.Is(err, fs.ErrNotExist) && d.above != 0 && fileSystem(filepath.Dir(d.path)) == d.above
	})
}

// renew opens the checkpoints of a name whose directories were removed anew, which makes them. Collective.
func (s *session) renew(name string) {
	i := slices.IndexFunc(s.named, func(n *named) bool { return n.name == name })
	if i < 0 {
		return
	}
	n := s.named[i]
	if s.rank.rank == 0 {
		s.log.Warn("holdfast node: directories of checkpoints were removed while the program runs; they are made "+
			"again, and the checkpoints in them are gone", "name", name)
	}
	if err := n.close(); err != nil {
		s.log.Warn("holdfast node: checkpoints that were under way have ended with the directories", "name", name,
			"error", err)
	}
}
