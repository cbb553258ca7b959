package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/node/messages"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/storage"
	"golang.org/x/sys/unix"
)

// request is a rank's call about checkpoints with a name, as the other ranks compare it.
type request struct {
	Call    wire.Type
	Name    string
	Version int64
	Removed bool // the directories of the name were removed on this rank's node

	InFlight int64  `json:",omitempty"` // as messages.InFlight counts them
	Failed   string `json:",omitempty"` // the count is not known
}

// String names the request for the user.
func (a request) String() string {
	switch {
	case a.Call == wire.TypeFind:
		return fmt.Sprintf("the search for a checkpoint %q", a.Name)
	case a.Call == wire.TypeBegin:
		return fmt.Sprintf("the restart from checkpoint %q, version %d", a.Name, a.Version)
	case a.Version < 0:
		return fmt.Sprintf("checkpoint %q", a.Name)
	}
	return fmt.Sprintf("checkpoint %q, version %d", a.Name, a.Version)
}

// agree waits until all ranks have made a request about checkpoints with a name. It fails on all of them unless the
// requests are equal and every rank has its part. removed reports whether directories of the name were removed on any
// rank. Collective.
func (s *session) agree(m wire.Message) (removed bool, err error) {
	mine := request{Call: m.Type, Name: m.Text, Version: m.Version, Removed: s.lacksDirs(m.Text)}
	if r := s.rank; r.counts != nil && m.Type == wire.TypeSave {
		n, err := messages.InFlight(messages.NewPage(r.counts.b, r.size), r.rank, (*mail)(r))
		if mine.InFlight = n; err != nil {
			mine.Failed = err.Error()
		}
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return false, err
	}
	blobs, err := s.ck.Gather(mine.String(), b)
	if err != nil {
		return false, err
	}
	all, inFlight := make([]request, len(blobs)), int64(0)
	for r := range all {
		if err := json.Unmarshal(blobs[r], &all[r]); err != nil {
			return false, fmt.Errorf("what rank %d asks for: %w", r, err)
		}
		if all[r].Failed != "" {
			return false, fmt.Errorf("rank %d does not say which messages are in flight: %s", r, all[r].Failed)
		}
		removed = removed || all[r].Removed
		inFlight += all[r].InFlight
	}
	first := all[0]
	other := func(a request) bool { return a.Call != first.Call || a.Name != first.Name }
	if r := slices.IndexFunc(all, other); r >= 0 {
		return false, fmt.Errorf("rank 0 asks for %v, and rank %d for %v: all ranks must make the same call, with the "+
			"same name", first, r, all[r])
	}
	none := func(a request) bool { return a.Version < 0 && m.Type == wire.TypeSave }
	if r := slices.IndexFunc(all, none); r >= 0 {
		return false, fmt.Errorf("rank %d gives version %d of checkpoint %q, which says that it has not saved its "+
			"part: no checkpoint is taken", r, all[r].Version, m.Text)
	}
	if r := slices.IndexFunc(all, func(a request) bool { return a.Version != first.Version }); r >= 0 {
		return false, fmt.Errorf("rank 0 gives version %d of checkpoint %q, and rank %d version %d: all ranks must "+
			"give the same", first.Version, m.Text, r, all[r].Version)
	}
	if inFlight != 0 {
		return false, fmt.Errorf("messages are in flight, and checkpoint %q would lose them: receive them before it, "+
			"or take a checkpoint without a name", m.Text)
	}
	return removed, nil
}

type namedDir struct {
	path  string
	above uint64 // the file system of the directory above, when it was opened
}

// dirsOf returns the directories that this rank looks after: its local one, and at rank 0 the global one.
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

// lacksDirs reports whether directories of an open name were removed, and nothing above them: their parents are on the
// same file system as before, and not below an empty mount point, where nothing may be written.
func (s *session) lacksDirs(name string) bool {
	n := s.ofName(name)
	return n != nil && n.ck != nil && slices.ContainsFunc(n.dirs, func(d namedDir) bool {
		_, err := os.Stat(filepath.Join(d.path, "holdfast.job"))
		return errors.Is(err, fs.ErrNotExist) && d.above != 0 && fileSystem(filepath.Dir(d.path)) == d.above
	})
}

// renew opens the checkpoints of a name again after their directories were removed, which makes the directories.
// Collective.
func (s *session) renew(name string) {
	n := s.ofName(name)
	if n == nil {
		return
	}
	if s.rank.rank == 0 {
		s.log.Warn("holdfast node: directories of checkpoints were removed while the program runs; they are made "+
			"again, and the checkpoints in them are gone", "name", name)
	}
	if err := n.close(); err != nil {
		s.log.Warn("holdfast node: checkpoints that were under way have ended with the directories", "name", name,
			"error", err)
	}
}
