package image

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/opencl"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"golang.org/x/sys/unix"
)

// RestoreOptions say how a program is started from an image.
type RestoreOptions struct {
	Dir      string
	Epoch    storage.Epoch // 0: the newest
	Truncate bool          // files that the program writes to and that have grown get the length they had
	Append   bool          // they stay so, and the program writes to their ends
	Starter
	// Older is called where the newest image is damaged; the one before it is taken then. Nil: it is an error.
	Older func(err error)
	Skip  []storage.Epoch // not these, unless Epoch names one
	// Command is that of the program. An image of another one is refused; nil: any is taken.
	Command []string
	Own     *os.File // that the caller writes to: it is never cut; may be nil
	Stay    bool     // Restored.Guard stays
}

// Starter starts a program from an image.
type Starter struct {
	CRIU   CRIU
	Self   string // program whose command GuardVerb runs Guard
	Device string // for the program, as gpustate.ParseSelect takes it; empty: by the environment
	GPU    string // for programs that use CUDA, as pause.ParseMoves takes it; empty: those that they had
}

// Restored is a program that runs again.
type Restored struct {
	Epoch   storage.Epoch
	PID     int
	Program string
	Changed []string       // what has become of files since the image was taken, within their length
	Guard   *child.Process // with Stay: it passes signals on to the program, and ends with its exit code
}

// ErrNone is the error if there is no image.
var ErrNone = errors.New("there is no image")

// Restore starts a program from an image. It runs once all that the image has is read and checked. After an error
// nothing of the program is left.
func Restore(ctx context.Context, o RestoreOptions) (p Restored, err error) {
	if err := trusted(o.Dir); err != nil {
		return p, err
	}
	if is, err := unused(o.Dir); is || err != nil {
		return p, cmp.Or(err, fmt.Errorf("%s: %w", o.Dir, ErrNone))
	}
	v, err := checkpoints.Open(ctx, o.Dir)
	if err != nil {
		return p, err
	}
	list, err := candidates(ctx, v, o)
	if err != nil {
		return p, err
	}
	for i, e := range list {
		p, err = restoreOne(ctx, v, e, o)
		if !errors.As(err, new(*damagedError)) || o.Older == nil || i == len(list)-1 {
			return p, err
		}
		o.Older(err)
	}
	return p, nil
}

// unused reports whether no image was ever committed in a directory.
func unused(dir string) (bool, error) {
	list, err := os.ReadDir(dir)
	ours := func(e os.DirEntry) bool {
		return e.Name() == jobFile || strings.HasPrefix(e.Name(), "epoch-")
	}
	return err == nil && !slices.ContainsFunc(list, ours), err
}

// damagedError is why an image cannot be read.
type damagedError struct {
	epoch storage.Epoch
	err   error
}

func (e *damagedError) Error() string { return fmt.Sprintf("image %d: %v", e.epoch, e.err) }

func (e *damagedError) Unwrap() error { return e.err }

// candidates returns the images that may be restored, the newest first.
func candidates(ctx context.Context, v *checkpoints.View, o RestoreOptions) (list []checkpoints.EpochInfo, err error) {
	all, err := v.Epochs(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		wanted := o.Epoch == i.Epoch || o.Epoch == 0 && !slices.Contains(o.Skip, i.Epoch)
		if wanted && (i.Committed || i.Err != nil) {
			list = append(list, i)
		}
	}
	switch {
	case len(list) > 0:
		return list, nil
	case len(all) > 0 && o.Epoch == 0 && len(o.Skip) > 0:
		return nil, fmt.Errorf("%s has no other image", o.Dir)
	case o.Epoch == 0:
		return nil, fmt.Errorf("%s: %w", o.Dir, ErrNone)
	}
	return nil, fmt.Errorf("%s has no image %d", o.Dir, o.Epoch)
}

func restoreOne(ctx context.Context, v *checkpoints.View, info checkpoints.EpochInfo, o RestoreOptions) (p Restored,
	err error) {
	e := info.Epoch
	if info.Err != nil {
		return p, &damagedError{e, fmt.Errorf("%w; an older one can be named (--epoch)", info.Err)}
	}
	dir, remove, err := folder()
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	sh, err := v.Fetch(ctx, e, 0)
	if err != nil {
		return p, &damagedError{e, err}
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	r, files, err := unpack(ctx, sh, dir)
	defer func() { closeAll(slices.Collect(maps.Values(files))) }()
	if err != nil {
		return p, &damagedError{e, err}
	}
	p = Restored{Epoch: e, PID: r.PID, Program: r.Program}
	if o.Command != nil && r.Command != nil && !slices.Equal(o.Command, r.Command) {
		return p, fmt.Errorf("image %d is of another command, %q: give this one a directory of its own, or set fresh",
			e, r.Command)
	}
	passOver(r.numbers())
	if err := r.allowed(&o); err != nil {
		return p, fmt.Errorf("image %d: %w", e, err)
	}
	for _, f := range r.Files {
		if text := f.changed(o.Own); text != "" {
			p.Changed = append(p.Changed, text)
		}
	}
	to, err := moves(ctx, o.GPU)
	if err != nil {
		return p, err
	}
	if r.Resume {
		w, err := startWaker(o.Self, r.CUDA, o.GPU, nil)
		if err != nil {
			return p, err
		}
		defer w.leave()
	}
	var cut []rest
	p.Guard, cut, err = r.start(o, dir, files, func(to *os.File, program int) error {
		err := feed(ctx, sh, stateOf(program), to)
		if err != nil && ctx.Err() == nil {
			err = &damagedError{e, err}
		}
		return err
	})
	if err == nil && r.Resume {
		err = r.wake(to, p.Guard)
	}
	for _, c := range cut {
		if err != nil { // as if nothing had been tried
			if e := c.back(); e != nil { // it stays where it was kept
				err = errors.Join(err, e)
				continue
			}
		}
		err = errors.Join(err, c.drop())
	}
	return p, err
}

// wake has the programs that use CUDA take their devices again, or those that were asked for. If they cannot, all
// processes are ended.
func (r *record) wake(to *pause.Moves, guard *child.Process) error {
	f, err := hold(r.Tree)
	if err != nil {
		return err
	}
	defer f.close()
	if err = resume(r.CUDA, to); err != nil {
		err = errors.Join(fmt.Errorf("it was ended, as it cannot have its GPU: %w", err), f.end())
		if guard != nil {
			_ = guard.Wait() // it ends with the program
		}
	}
	return err
}

// feed passes a state on, which is verified on the way.
func feed(ctx context.Context, sh *storage.Shard, name string, to *os.File) error {
	all := sh.Sections()
	size := all[slices.IndexFunc(all, func(s storage.SectionInfo) bool { return s.Name == name })].Size // it is there
	return opencl.Feed(to, size, func(b []byte, off int64) error { return sh.ReadAt(ctx, name, b, off) })
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

// folder makes one for an image. Its lock lasts as long as this process: the next one removes the files of a killed
// one.
func folder() (dir string, remove func() error, err error) {
	const prefix = "holdfast-image-"
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // those of other users stay
	for _, old := range left {
		f, err := os.OpenFile(old, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if st, err := f.Stat(); err == nil && st.Sys().(*syscall.Stat_t).Uid == uint32(os.Geteuid()) &&
			unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(old) // the next one tries again
		}
		_ = f.Close() // it was only looked at
	}
	for {
		if dir, err = os.MkdirTemp("", prefix); err != nil {
			return "", nil, err
		}
		lock, err := os.Open(dir)
		if err == nil {
			if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX); err == nil {
				_, err = os.Stat(dir)
			}
		}
		if err == nil {
			return dir, func() error { return errors.Join(os.RemoveAll(dir), lock.Close()) }, nil
		}
		_ = lock.Close() // there may be none

		// Else another command took it for one that was left.
		if !errors.Is(err, os.ErrNotExist) {
			return "", nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
}

// unpack reads an image, but for the states of its programs. The files, by sections, are in memory, or, if they are
// large, in a folder. CRIU finds its files there by their names.
func unpack(ctx context.Context, sh *storage.Shard, dir string) (r *record, files map[string]*os.File, err error) {
	sizes := map[string]int64{}
	files = map[string]*os.File{}
	for _, s := range sh.Sections() {
		sizes[s.Name] = s.Size
		if s.Name == recordSection {
			if r, err = readRecord(ctx, sh, s.Size); err != nil {
				return nil, files, err
			}
			continue
		}
		name := fileOf(s.Name)
		if name == "" {
			return nil, files, fmt.Errorf("it has a section %q, which no image has", s.Name)
		}
		if strings.HasPrefix(s.Name, stateSection) {
			continue // feed passes it on
		}
		f, err := extract(ctx, sh, s, filepath.Join(dir, name))
		if err != nil {
			return nil, files, err
		}
		files[s.Name] = f
	}
	if r == nil {
		return nil, files, errors.New("it is a checkpoint, and no image of a process")
	}
	return r, files, r.complete(sizes)
}

func readRecord(ctx context.Context, sh *storage.Shard, n int64) (*record, error) {
	if n > maxRecord {
		return nil, fmt.Errorf("a record of %d bytes", n)
	}
	b := make([]byte, n)
	if err := sh.ReadAt(ctx, recordSection, b, 0); err != nil {
		return nil, err
	}
	return decode(b)
}

// Describe names the process that a shard is an image of. The text is empty if the record cannot be read.
func Describe(ctx context.Context, sh *storage.Shard) string {
	for _, s := range sh.Sections() {
		if s.Name != recordSection {
			continue
		}
		if r, err := readRecord(ctx, sh, s.Size); err == nil {
			return fmt.Sprintf("process %d (%s) of user %d on %s", r.PID, r.Program, r.UID, r.Host)
		}
	}
	return ""
}

// complete checks that the files are there which the helper needs besides CRIU's.
func (r *record) complete(sizes map[string]int64) error {
	for p := range r.Programs {
		if _, found := sizes[stateOf(p)]; !found {
			return fmt.Errorf("it has no section %q", stateOf(p))
		}
		for i, m := range r.Programs[p].Areas {
			name := areaOf(p, i)
			if n, found := sizes[name]; m.Address == 0 && (!found || n != m.Bytes) {
				return fmt.Errorf("its section %q has %d bytes, want %d", name, n, m.Bytes)
			}
		}
	}
	return nil
}

const maxRecord = 256 << 20

// fileOf returns the name of the file that a section becomes; empty: it is no section of an image.
func fileOf(section string) string {
	name, found := strings.CutPrefix(section, criuPrefix)
	if found && strings.HasSuffix(name, ".img") && name == filepath.Base(name) {
		return name
	}
	var program, area int
	_, _ = fmt.Sscanf(section, areaPrefix+"%d/%d", &program, &area) // else it is another section
	if section == areaOf(program, area) {
		return strings.ReplaceAll(section, "/", "-")
	}
	_, _ = fmt.Sscanf(section, stateSection+"/%d", &program) // as before
	if section == stateOf(program) {
		return strings.ReplaceAll(section, "/", "-")
	}
	return ""
}

// extract reads a section into a file. It is in memory, with a link at the path, unless it would take much of that. An
// area always is: it is to be shared.
func extract(ctx context.Context, sh *storage.Shard, s storage.SectionInfo, path string) (f *os.File, err error) {
	const share = 4
	_, available := shm.Machine()
	if s.Size <= available/share || strings.HasPrefix(s.Name, areaPrefix) {
		if f, err = shm.Create("opencl", int(s.Size)); err == nil {
			err = errors.Join(shm.Seal(f, unix.F_SEAL_SEAL),
				os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), path))
		}
	} else if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, s.Size)
	}
	if err == nil && s.Size > 0 {
		b, e := unix.Mmap(int(f.Fd()), 0, int(s.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err = e; err == nil {
			err = errors.Join(sh.ReadAt(ctx, s.Name, b, 0), unix.Munmap(b))
		}
	}
	if err != nil && f != nil {
		err = errors.Join(err, f.Close())
	}
	return f, err
}

// allowed returns the reason why the program cannot be started here, nil for none.
func (r *record) allowed(o *RestoreOptions) error {
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
	case len(r.CUDA) > 0 && r.Door != child.NameHere(r.CUDA[0]):
		return errors.New("its program uses CUDA and is of another PID namespace: start it in that one")
	case o.GPU != "" && len(r.CUDA) == 0:
		return errors.New("its program uses no CUDA: --device names a device of OpenCL")
	case o.GPU != "" && !r.Resume:
		return errors.New("its program was paused, and stays so: start it without --gpu, and holdfast migrate it")
	case r.UID != os.Geteuid() && os.Geteuid() != 0:
		return fmt.Errorf("its program is of user %d: only that user and root can start it", r.UID)
	}
	if err := r.free(); err != nil {
		return err
	}
	for _, p := range r.Programs { // the commands that served them notice their end soon
		for end := time.Now().Add(5 * time.Second); isServed(p.PID); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				return fmt.Errorf("the command that served process %d (holdfast opencl) has not noticed its end: end "+
					"that command", p.PID)
			}
		}
	}
	for _, f := range r.Files {
		st, err := os.Stat(f.Path)
		if err != nil {
			return fmt.Errorf("its program had a file open that is not there: %w", err)
		}
		other := !f.Read && !f.is(o.Own) && f.Inode != st.Sys().(*syscall.Stat_t).Ino // such as a log that is rotated
		switch {
		case st.Size() == f.Bytes, f.Read && st.Size() > f.Bytes, other && o.Append:
		case other:
			return fmt.Errorf("%s is another file than the program had open, and has %d bytes in place of %d: put "+
				"that one back, or --append has the program write behind what this one has", f.Path, st.Size(), f.Bytes)
		case st.Size() < f.Bytes:
			return fmt.Errorf("%s has %d bytes, and had %d when the image was taken", f.Path, st.Size(), f.Bytes)
		case !o.Truncate && !o.Append:
			return fmt.Errorf("%s has grown since the image was taken, by %d bytes: --truncate takes them away, "+
				"--append has the program write behind them", f.Path, st.Size()-f.Bytes)
		}
	}
	return nil
}

// free returns an error if a number that the processes and threads need is another one's.
func (r *record) free() error {
	for _, n := range r.numbers() {
		if !awaitFree(n, n != r.PID) { // others may be over soon
			return fmt.Errorf("its program has the process ID %d, which another process has now (%s): wait for its end",
				n, nameOf(n))
		}
	}
	return nil
}

// errTaken is the error if a number was another process's only while CRIU needed it.
var errTaken = errors.New("another process had for a moment the number of one of its processes or threads: try again")

// isServed reports whether a command listens that serves a program.
func isServed(pid int) bool {
	b, err := os.ReadFile("/proc/net/unix")
	return err == nil && bytes.Contains(b, []byte(" "+opencl.DoorPrefix+child.NameHere(pid)+"\n"))
}

func (r *record) numbers() []int { return append([]int{r.PID}, r.Numbers...) }

// passOver has the kernel give new processes later numbers. On another node, CRIU or a thread of this command could be
// the next to get one of these.
func passOver(numbers []int) {
	const newest = "/proc/sys/kernel/ns_last_pid"
	b, _ := os.ReadFile(newest)
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if most := slices.Max(numbers); err == nil && n < most {
		_ = os.WriteFile(newest, []byte(strconv.Itoa(most)), 0) // without that right the numbers may be taken
	}
}

// LeaveNumbers has a program that is started next in a new PID namespace have none of the low numbers. There the
// threads of the process that restores it have these.
func LeaveNumbers() { passOver([]int{1000}) }

func nameOf(pid int) string {
	b, _ := os.ReadFile(proc(pid, "comm")) // it may have ended
	if p, err := child.Look(pid); err == nil && p.Ended {
		return fmt.Sprintf("%s, which has ended; process %d, %s, has not collected it", strings.TrimSpace(string(b)),
			p.Parent, pause.ProgramOf(p.Parent))
	}
	return cmp.Or(strings.TrimSpace(string(b)), "it has ended, and others are of its group or session")
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

// start has CRIU make the process, which is stopped at first, and the helper its objects. state passes on that of a
// program. It keeps what is cut from files for the case that the program cannot have its GPU.
func (r *record) start(o RestoreOptions, dir string, sections map[string]*os.File,
	state func(to *os.File, program int) error) (guard *child.Process, kept []rest, err error) {
	var cut []file
	ends := map[string]int64{} // of files that have grown
	for _, f := range r.Files {
		switch bytes := f.now(); {
		case bytes == f.Bytes:
		case o.Append || f.Read || f.is(o.Own):
			ends[f.Path] = bytes
		case bytes > f.Bytes:
			ends[f.Path] = f.Bytes
			cut = append(cut, f)
		}
	}
	if len(ends) > 0 {
		if err := adapt(filepath.Join(dir, filesImage), ends); err != nil {
			return nil, nil, err
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
	args := []string{"restore", "--restore-detached", "--leave-stopped"}
	join := func(socket uint64) {
		args = append(args, "--inherit-fd", fmt.Sprintf("fd[%d]:socket:[%d]", guardIn+len(programs), socket))
		p, h, e := pair()
		programs, helpers = append(programs, own(p, e)), append(helpers, own(h, e))
	}
	for _, p := range r.Programs {
		join(p.Control)
		for _, c := range p.Connections {
			join(c.Socket)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	c := o.CRIU.command(dir, args)
	c.files = programs
	g, err := c.guarded([]string{o.Self, GuardVerb}, r.Tree)
	if err != nil && isTaken(err.Error()) {
		err = errors.Join(cmp.Or(r.free(), errTaken), err)
	}
	if err != nil {
		return nil, nil, err
	}
	line := goLine
	if o.Stay {
		line, guard = stayLine, g.cmd
	}
	defer func() {
		if err != nil {
			line = ""
		}
		err = errors.Join(err, g.leave(line))
	}()
	for i := range r.Programs {
		p, n := &r.Programs[i], 1+len(r.Programs[i].Connections)
		area := func(k int) *os.File { return sections[areaOf(i, k)] }
		state := func(to *os.File) error { return state(to, i) }
		if err := p.attach(o, r.user(), programs[:n], helpers[:n], state, area); err != nil {
			return guard, nil, err
		}
		programs, helpers = programs[n:], helpers[n:]
	}
	if r.Resume {
		if kept, err = behind(cut); err != nil {
			return guard, kept, err
		}
	}
	return guard, kept, shorten(cut) // nothing is cut for a restore that fails
}

// attach starts the helper of a program that CRIU has made. programs and helpers are the ends of its sockets.
func (r *program) attach(o RestoreOptions, user *syscall.Credential, programs, helpers []*os.File,
	state func(to *os.File) error, section func(area int) *os.File) error {
	var ours []*os.File
	defer func() { closeAll(ours) }() // the helper has its own
	mapped, err := mappings(r.PID)
	if err != nil {
		return err
	}
	own := func(f *os.File, e error) *os.File {
		if err = errors.Join(err, e); e == nil {
			ours = append(ours, f)
		}
		return f
	}
	ring := own(r.Ring.open(r.PID, mapped))
	var areas []*os.File
	for i, m := range r.Areas {
		if m.Address != 0 {
			areas = append(areas, own(m.open(r.PID, mapped)))
		} else {
			areas = append(areas, section(i))
		}
	}
	if err != nil {
		return err
	}
	if err := r.putAsked(programs[0], areas, helpers); err != nil {
		return err
	}
	files := []*os.File{helpers[0], nil, ring} // and the state
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
	process, err := unix.PidfdOpen(r.PID, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	errs := own(errorsOf(process))
	if err != nil {
		return err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	files[1] = from
	fed := make(chan error, 1)
	go func() { fed <- state(to) }()
	err = opencl.ServePaused(files, o.Device, user, errs)
	_ = from.Close() // the helper has its own
	if e := <-fed; e != nil {
		return e // why the helper has ended
	}
	return err
}

// user is whom helpers run as, nil: as this process.
func (r *record) user() *syscall.Credential {
	if os.Geteuid() != 0 || r.UID == 0 {
		return nil
	}
	user := &syscall.Credential{Uid: uint32(r.UID), Gid: uint32(r.GID)}
	for _, g := range r.Groups {
		user.Groups = append(user.Groups, uint32(g))
	}
	return user
}

// putAsked writes the messages that were on the control connection, with the same areas and connections.
func (r *program) putAsked(program *os.File, areas, helpers []*os.File) error {
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

// errorsOf returns the standard error of a process, where its helper reports failures.
func errorsOf(process int) (*os.File, error) {
	if fd, err := unix.PidfdGetfd(process, 2, 0); err == nil {
		return os.NewFile(uintptr(fd), "standard error"), nil
	}
	return os.OpenFile(os.DevNull, os.O_WRONLY, 0) // it has closed it
}
