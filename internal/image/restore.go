package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/shm"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"golang.org/x/sys/unix"
)

// RestoreOptions say how a program is started from an image.
type RestoreOptions struct {
	Dir      string
	Epoch    storage.Epoch // 0: the newest
	Truncate bool          // files that have grown get the length they had
	CRIU     CRIU
	// Self is a command that runs Guard on the arguments that follow.
	Self []string
	// Serve starts the helper that serves the program, as the user of the program if one is given, and returns when all
	// objects are on a device. The files are the control connection and those of opencl.Resume; errs is for what the
	// helper reports.
	Serve func(files []*os.File, user *syscall.Credential, errs *os.File) error
}

// Restored is a program that runs again.
type Restored struct {
	Epoch   storage.Epoch
	PID     int
	Program string
}

// Restore starts a program from an image. All that the image has is read and checked before. After an error nothing of
// the program is left.
func Restore(ctx context.Context, o RestoreOptions) (p Restored, err error) {
	if err := trusted(o.Dir); err != nil {
		return p, err
	}
	dir, err := os.MkdirTemp("", "holdfast-image-")
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r, e, err := unpack(ctx, o.Dir, o.Epoch, dir)
	if err != nil {
		return p, err
	}
	p = Restored{e, r.PID, r.Program}
	if err := r.allowed(o.Truncate); err != nil {
		return p, fmt.Errorf("image %d: %w", e, err)
	}
	return p, r.start(o, dir)
}

// trusted refuses a directory of images that another user can write to: an image runs whatever is in it.
func trusted(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		owner := int(st.Sys().(*syscall.Stat_t).Uid)
		if owner != os.Geteuid() && owner != 0 {
			return fmt.Errorf("%s belongs to user %d: only that user can start a program from it", path, owner)
		}
		if st.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("%s can be written to by other users (%v): a program is not started from it", path,
				st.Mode().Perm())
		}
		return nil
	})
}

// unpack reads an image: CRIU's files and the others go into a folder.
func unpack(ctx context.Context, from string, e storage.Epoch, dir string) (r *record, _ storage.Epoch, err error) {
	v, err := checkpoints.Open(ctx, from)
	if err != nil {
		return nil, 0, err
	}
	list, err := v.Epochs(ctx)
	if err != nil {
		return nil, 0, err
	}
	i := slices.IndexFunc(list, func(i checkpoints.EpochInfo) bool {
		return i.Committed && i.Err == nil && (e == 0 || i.Epoch == e) || i.Err != nil && e == 0
	})
	switch {
	case i < 0 && e == 0:
		return nil, 0, fmt.Errorf("%s has no image", from)
	case i < 0:
		return nil, 0, fmt.Errorf("%s has no image %d", from, e)
	case list[i].Err != nil:
		return nil, 0, fmt.Errorf("image %d: %w; an older one can be named (--epoch)", list[i].Epoch, list[i].Err)
	}
	e = list[i].Epoch
	sh, err := v.Fetch(ctx, e, 0)
	if err != nil {
		return nil, e, err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	for _, s := range sh.Sections() {
		if s.Name == recordSection {
			if s.Size > maxRecord {
				return nil, e, fmt.Errorf("image %d: a record of %d bytes", e, s.Size)
			}
			b := make([]byte, s.Size)
			if err := sh.ReadAt(ctx, s.Name, b, 0); err != nil {
				return nil, e, err
			}
			if r, err = decode(b); err != nil {
				return nil, e, fmt.Errorf("image %d: %w", e, err)
			}
			continue
		}
		name := fileOf(s.Name)
		if name == "" {
			return nil, e, fmt.Errorf("image %d has a section %q, which no image has", e, s.Name)
		}
		if err := extract(ctx, sh, s, filepath.Join(dir, name)); err != nil {
			return nil, e, err
		}
	}
	if r == nil {
		return nil, e, fmt.Errorf("epoch %d of %s is no image of a process", e, from)
	}
	return r, e, nil
}

const maxRecord = 256 << 20

// fileOf is the name of the file that a section becomes; empty: it is no section of an image.
func fileOf(section string) string {
	name, found := strings.CutPrefix(section, criuPrefix)
	if found && strings.HasSuffix(name, ".img") && name == filepath.Base(name) {
		return name
	}
	if n, found := strings.CutPrefix(section, areaPrefix); found {
		if _, err := strconv.ParseUint(n, 10, 31); err == nil {
			return areaFile(n)
		}
	}
	if section == stateSection {
		return stateSection
	}
	return ""
}

func areaFile(number string) string { return "area-" + number }

func extract(ctx context.Context, sh *storage.Shard, s storage.SectionInfo, path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := make([]byte, min(s.Size, 4<<20))
	for at := int64(0); at < s.Size; at += int64(len(b)) {
		b = b[:min(int64(len(b)), s.Size-at)]
		if err := sh.ReadAt(ctx, s.Name, b, at); err != nil {
			return err
		}
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// allowed returns the reason why the program cannot be started here, nil for none.
func (r *record) allowed(truncate bool) error {
	machine, kernel, err := system()
	if err != nil {
		return err
	}
	switch {
	case r.Machine != machine:
		return fmt.Errorf("it is of a machine of another type: %s, and this one is %s", r.Machine, machine)
	case newer(r.Kernel, kernel):
		return fmt.Errorf("it is of a newer kernel, %s, and this one is %s: a process may use what this one has not",
			r.Kernel, kernel)
	case r.UID != os.Geteuid() && os.Geteuid() != 0:
		return fmt.Errorf("its program is of user %d: only that user and root can start it", r.UID)
	}
	if !awaitFree(r.PID) {
		return fmt.Errorf("its program has the process ID %d, which another process has now (%s): wait for its end",
			r.PID, nameOf(r.PID))
	}
	for _, f := range r.Files {
		st, err := os.Stat(f.Path)
		switch {
		case err != nil:
			return fmt.Errorf("its program had a file open that is not there: %w", err)
		case st.Size() == f.Bytes:
		case st.Size() < f.Bytes:
			return fmt.Errorf("%s has %d bytes, and had %d when the image was taken", f.Path, st.Size(), f.Bytes)
		case !truncate:
			return fmt.Errorf("%s has grown since the image was taken, by %d bytes: --truncate takes them away", f.Path,
				st.Size()-f.Bytes)
		}
	}
	return nil
}

func nameOf(pid int) string {
	b, _ := os.ReadFile(proc(pid, "comm")) // it may have ended
	return strings.TrimSpace(string(b))
}

// newer compares releases of the kernel by their first two numbers.
func newer(a, than string) bool {
	number := func(text string) (n int) {
		var major, minor int
		_, _ = fmt.Sscanf(text, "%d.%d", &major, &minor) // else it is old
		return major<<16 + minor
	}
	return number(a) > number(than)
}

// start has CRIU make the process, which is stopped at first, and the helper its objects.
func (r *record) start(o RestoreOptions, dir string) (err error) {
	for _, f := range r.Files {
		if st, err := os.Stat(f.Path); err == nil && st.Size() > f.Bytes {
			if err := os.Truncate(f.Path, f.Bytes); err != nil {
				return err
			}
		}
	}
	var ours []*os.File
	defer func() { closeAll(ours) }() // the helper and the process have theirs
	own := func(f *os.File, e error) *os.File {
		if err = errors.Join(err, e); e == nil {
			ours = append(ours, f)
		}
		return f
	}
	var programs, helpers []*os.File
	for range 1 + len(r.Connections) {
		p, h, e := pair()
		programs, helpers = append(programs, own(p, e)), append(helpers, own(h, e))
	}
	if err != nil {
		return err
	}
	args := []string{"restore", "--restore-detached", "--leave-stopped", "--inherit-fd",
		fmt.Sprintf("fd[3]:socket:[%d]", r.Control)}
	for i, c := range r.Connections {
		args = append(args, "--inherit-fd", fmt.Sprintf("fd[%d]:socket:[%d]", 4+i, c.Socket))
	}
	c := o.CRIU.command(dir, args)
	c.files = programs
	g, err := c.guarded(o.Self, r.PID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.leave(err == nil)) }()
	mapped, err := mappings(r.PID)
	if err != nil {
		return err
	}
	ring := own(r.Ring.open(r.PID, mapped))
	var areas []*os.File
	for i, m := range r.Areas {
		if m.Address != 0 {
			areas = append(areas, own(m.open(r.PID, mapped)))
		} else {
			areas = append(areas, own(fill(filepath.Join(dir, areaFile(strconv.Itoa(i))), m.Bytes)))
		}
	}
	state := own(os.Open(filepath.Join(dir, stateSection)))
	if err != nil {
		return err
	}
	if err := r.putAsked(programs[0], areas, helpers); err != nil {
		return err
	}
	files := []*os.File{helpers[0], state, ring}
	for i, m := range r.Areas {
		if !m.New {
			files = append(files, areas[i])
		}
	}
	for i, c := range r.Connections {
		p := programs[1+i]
		if err := widen(p, 2*len(c.Pending), func() error { return put(p, c.Pending) }); err != nil {
			return err
		}
		if !c.New {
			files = append(files, helpers[1+i])
		}
	}
	var user *syscall.Credential
	if os.Geteuid() == 0 && r.UID != 0 {
		user = &syscall.Credential{Uid: uint32(r.UID), Gid: uint32(r.GID)}
		for _, g := range r.Groups {
			user.Groups = append(user.Groups, uint32(g))
		}
	}
	return o.Serve(files, user, own(errorsOf(g.process)))
}

// putAsked writes what was on the control connection, with the same areas and connections.
func (r *record) putAsked(program *os.File, areas, helpers []*os.File) error {
	const message = 2048 // bytes of the kernel's memory for one, at most
	return widen(program, message*len(r.Asked), func() error {
		for _, m := range r.Asked {
			var with []int
			switch {
			case m.Area > 0:
				with = []int{int(areas[m.Area-1].Fd())}
			case m.Connection > 0:
				with = []int{int(helpers[m.Connection].Fd())}
			}
			if err := put(program, []byte{m.Byte}, with...); err != nil {
				return err
			}
		}
		return nil
	})
}

// errorsOf is the standard error of a process, where its helper reports what goes wrong.
func errorsOf(process int) (*os.File, error) {
	if fd, err := unix.PidfdGetfd(process, 2, 0); err == nil {
		return os.NewFile(uintptr(fd), "standard error"), nil
	}
	return os.OpenFile(os.DevNull, os.O_WRONLY, 0) // it has closed it
}

// fill makes shared memory of a file's bytes.
func fill(path string, n int64) (*os.File, error) {
	from, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	f, b, err := shm.New("holdfast opencl", int(n))
	if err != nil {
		return nil, err
	}
	_, err = io.ReadFull(from, b)
	if err = errors.Join(err, shm.Free(b)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
