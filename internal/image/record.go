package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/pause"
	"golang.org/x/sys/unix"
)

// Names of the sections of a shard. A file of CRIU's and an area have their own after the prefix.
const (
	recordSection = "image"
	stateSection  = "opencl"
	criuPrefix    = "criu/"
	areaPrefix    = "area/"
)

// stateOf and areaOf name sections of the program with an index.
func stateOf(program int) string { return fmt.Sprintf("%s/%d", stateSection, program) }

func areaOf(program, area int) string { return fmt.Sprintf("%s%d/%d", areaPrefix, program, area) }

const recordVersion = 2

// record describes the processes of an image, as JSON.
type record struct {
	Version int `json:"version"`

	PID     int    `json:"pid"`     // of the first process, which has started the others
	Tree    []int  `json:"tree"`    // of all, that one first
	Numbers []int  `json:"numbers"` // of all and their threads
	Program string `json:"program"`
	UID     int    `json:"uid"`
	GID     int    `json:"gid"`
	Groups  []int  `json:"groups,omitempty"`
	Machine string `json:"machine"` // as uname says
	Kernel  string `json:"kernel"`
	Host    string `json:"host"`
	CRIU    string `json:"criu"` // its version

	Command []string `json:"command,omitempty"` // that holdfast run has started

	Programs []program `json:"programs"`         // those among the processes that use OpenCL
	CUDA     []int     `json:"cuda,omitempty"`   // those that use CUDA: they are paused
	Resume   bool      `json:"resume,omitempty"` // these ran before
	Door     string    `json:"door,omitempty"`   // the name of the first one's socket
	Files    []file    `json:"files,omitempty"`
}

// program is a process with a helper.
type program struct {
	PID int `json:"pid"`

	// Sockets of the program by the numbers that CRIU uses, and the bytes on the way from them.
	Control     uint64       `json:"control"`
	Asked       []message    `json:"asked,omitempty"` // on the control connection
	Connections []connection `json:"connections,omitempty"`

	Ring  memory   `json:"ring"`
	Areas []memory `json:"areas,omitempty"`
}

// message is a byte on the control connection, with an area or a connection of the record if one came with it: a
// number from 1 on.
type message struct {
	Byte       byte `json:"byte"`
	Area       int  `json:"area,omitempty"`
	Connection int  `json:"connection,omitempty"`
}

type connection struct {
	Socket  uint64 `json:"socket"`
	Pending []byte `json:"pending,omitempty"`
	New     bool   `json:"new,omitempty"` // a message has it
}

// memory is shared with the helper. If the program has unmapped it, its bytes are a section.
type memory struct {
	Address uint64 `json:"address,omitempty"` // in the program, 0: nowhere
	Bytes   int64  `json:"bytes"`
	New     bool   `json:"new,omitempty"` // a message has it
}

// file is one that the program has open, and that must be as long as it was, or longer if the program only reads it.
type file struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Read  bool   `json:"read,omitempty"` // only
	Inode uint64 `json:"inode,omitempty"`
	Time  int64  `json:"time,omitempty"` // when it was last written to, in nanoseconds of Unix time
}

// identify fills in the identity of processes, of which the first has started the others.
func (r *record) identify(tree []int) (err error) {
	pid := tree[0]
	r.Version, r.PID, r.Tree = recordVersion, pid, tree
	r.Machine, r.Kernel, err = system()
	if err != nil {
		return err
	}
	if r.Host, err = os.Hostname(); err != nil {
		return err
	}
	status, err := os.ReadFile(proc(pid, "status"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		var ids []int
		for _, f := range strings.Fields(value) {
			if n, err := strconv.Atoi(f); err == nil {
				ids = append(ids, n)
			}
		}
		switch {
		case key == "Uid" && len(ids) == 4:
			r.UID = ids[1] // the one in effect
		case key == "Gid" && len(ids) == 4:
			r.GID = ids[1]
		case key == "Groups":
			r.Groups = ids
		}
	}
	return nil
}

// system returns this machine's type, and the release of its kernel.
func system() (machine, kernel string, err error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", "", err
	}
	return unix.ByteSliceToString(u.Machine[:]), unix.ByteSliceToString(u.Release[:]), nil
}

func proc(pid int, file string) string { return filepath.Join("/proc", strconv.Itoa(pid), file) }

// look fills in the open files of a process, and returns the numbers of its sockets.
func (r *record) look(pid int) (sockets map[uint64]bool, err error) {
	sockets = map[uint64]bool{}
	open, err := filepath.Glob(proc(pid, "fd/*"))
	if err != nil {
		return nil, err
	}
	for _, link := range open {
		to, err := os.Readlink(link)
		if err != nil {
			continue // the process is stopped: it has never been one
		}
		var n uint64
		if _, err := fmt.Sscanf(to, "socket:[%d]", &n); err == nil {
			sockets[n] = true
			continue
		}
		st, err := os.Stat(link)
		if strings.HasPrefix(to, "/memfd:") || strings.HasPrefix(to, "/proc/") {
			continue // memory that the program is making or passing on, and what the kernel tells: CRIU has it
		}
		if to == "anon_inode:[io_uring]" {
			return nil, fmt.Errorf("process %d (%s) uses io_uring, which CRIU cannot save", pid, pause.ProgramOf(pid))
		}
		if err != nil || !st.Mode().IsRegular() || !strings.HasPrefix(to, "/") ||
			st.Sys().(*syscall.Stat_t).Nlink == 0 {
			continue // CRIU saves a file without a name
		}
		r.note(to, st, reads(pid, filepath.Base(link)))
	}
	for _, writes := range []bool{true, false} {
		mapped, err := mappedFiles(pid, writes)
		if err != nil {
			return sockets, err
		}
		for path, st := range mapped {
			r.note(path, st, !writes)
		}
	}
	return sockets, nil
}

// mappedFiles returns the files that a process shares with others in its memory, and writes to, or only reads.
func mappedFiles(pid int, writes bool) (map[string]os.FileInfo, error) {
	files := map[string]os.FileInfo{}
	mapped, err := mappings(pid)
	for _, m := range mapped {
		if !m.shared || m.writes != writes {
			continue // of thousands all but a few
		}
		st, err := os.Stat(m.name)
		if err == nil && st.Mode().IsRegular() && st.Sys().(*syscall.Stat_t).Ino == m.inode {
			files[m.name] = st
		}
	}
	return files, err
}

func (r *record) note(path string, st os.FileInfo, reads bool) {
	at := slices.IndexFunc(r.Files, func(f file) bool { return f.Path == path })
	if at < 0 {
		at = len(r.Files)
		r.Files = append(r.Files, file{path, st.Size(), true, st.Sys().(*syscall.Stat_t).Ino, st.ModTime().UnixNano()})
	}
	r.Files[at].Read = r.Files[at].Read && reads
}

// reads reports whether a descriptor is for reading alone.
func reads(pid int, fd string) bool {
	b, _ := os.ReadFile(proc(pid, "fdinfo/"+fd)) // if it cannot be read, it may be for writing
	_, rest, _ := strings.Cut(string(b), "flags:")
	var flags uint64
	n, _ := fmt.Sscanf(rest, "%o", &flags)
	return n == 1 && flags&unix.O_ACCMODE == unix.O_RDONLY
}

// find fills in where a process has mapped shared memory from its beginning on.
func (m *memory) find(f *os.File, mapped []mapping) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	m.Bytes = st.Size()
	for _, p := range mapped {
		if p.inode == st.Sys().(*syscall.Stat_t).Ino && p.offset == 0 && strings.HasPrefix(p.name, "/memfd:") {
			m.Address = p.from
		}
	}
	return nil
}

// mapping is a line of /proc/PID/maps.
type mapping struct {
	from, to, offset, inode uint64
	shared, writes          bool
	name                    string
}

func mappings(pid int) (list []mapping, err error) {
	b, err := os.ReadFile(proc(pid, "maps"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		var m mapping
		var mode, device string
		if _, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &m.from, &m.to, &mode, &m.offset, &device,
			&m.inode); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", proc(pid, "maps"), line, err)
		}
		if i := strings.IndexByte(line, '/'); i > 0 {
			m.name = strings.TrimSpace(line[i:])
		}
		m.shared, m.writes = len(mode) == 4 && mode[3] == 's', len(mode) == 4 && mode[1] == 'w'
		list = append(list, m)
	}
	return list, nil
}

// open opens shared memory of a process that CRIU has made.
func (m *memory) open(pid int, mapped []mapping) (*os.File, error) {
	for _, p := range mapped {
		if p.from == m.Address && p.shared && p.offset == 0 {
			f, err := os.OpenFile(proc(pid, fmt.Sprintf("map_files/%x-%x", p.from, p.to)), os.O_RDWR, 0)
			if err != nil {
				return nil, err
			}
			if st, err := f.Stat(); err != nil || st.Size() != m.Bytes {
				return nil, errors.Join(errors.New("the shared memory has another length"), err, f.Close())
			}
			return f, nil
		}
	}
	return nil, fmt.Errorf("the process has no shared memory at %#x", m.Address)
}

func decode(b []byte) (*record, error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return nil, fmt.Errorf("its record: %w", err)
	}
	if version.Version != recordVersion {
		return nil, fmt.Errorf("it is of version %d, and this command knows %d: use the release that has taken it",
			version.Version, recordVersion)
	}
	r := &record{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("its record: %w", err)
	}
	return r, r.check()
}

// check refuses numbers that lead nowhere.
func (r *record) check() error {
	if r.PID <= 1 || len(r.Programs)+len(r.CUDA) == 0 || len(r.Tree) == 0 || r.Tree[0] != r.PID {
		return errFit
	}
	for _, pid := range r.CUDA {
		if !slices.Contains(r.Tree, pid) {
			return errFit
		}
	}
	for i := range r.Programs {
		if !slices.Contains(r.Tree, r.Programs[i].PID) {
			return errFit
		}
		if err := r.Programs[i].check(); err != nil {
			return err
		}
	}
	return nil
}

var errFit = errors.New("its record does not fit together")

func (r *program) check() error {
	areas, connections := 0, 0
	for _, m := range r.Asked {
		if m.Area < 0 || m.Area > len(r.Areas) || m.Connection < 0 || m.Connection > len(r.Connections) {
			return errors.New("its record names an area or a connection that it does not have")
		}
		if m.Area > 0 {
			areas++
		}
		if m.Connection > 0 {
			connections++
		}
	}
	for _, m := range r.Areas {
		if m.New {
			areas--
		}
	}
	for _, c := range r.Connections {
		if c.New {
			connections--
		}
	}
	if areas != 0 || connections != 0 || r.Ring.Address == 0 || r.Ring.Bytes <= 0 {
		return errFit
	}
	return nil
}
