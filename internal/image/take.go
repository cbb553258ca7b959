package image

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/opencl"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Options say how an image is taken.
type Options struct {
	Dir  string        // of images; it is made if only its last element is missing
	Keep int           // the newest so many images stay
	Kill bool          // the program ends with its image
	Wait time.Duration // for its commands, and for another one in Dir
	CRIU CRIU
	Self string // program whose command GuardVerb runs Guard

	KeepEvery    int           // one of KeepEvery images is never removed; 0: none
	KeepInterval time.Duration // one is never removed each time that this has passed
	Command      []string      // of the program, if it is known
}

// Taken is an image that was committed.
type Taken struct {
	Epoch   storage.Epoch
	Program string
	Bytes   int64
	Stored  int64         // of them, as the shard has them
	Stopped time.Duration // how long the program stood still; with Kill, until the image was committed
	Lacks   []string      // what a restored program does not find as it was: other ends of pipes, and mapped files
}

// work is the folder in a directory of images in which CRIU writes. Leftovers of a killed command are removed.
const work = "criu.part"

// lockFile is in a directory of images. Its lock is that of the command to which the folder belongs, of its CRIU and of
// its waker: they are at work for some time after the command is killed.
const lockFile = "criu.lock"

// jobPrefix begins the names of jobs whose epochs are images.
const jobPrefix = "image of "

// jobFile is in a directory of images: storage keeps the job's name there.
const jobFile = "holdfast.job"

// JobOf names the job whose epochs are images of a program.
func JobOf(program string) string { return jobPrefix + program }

// IsJob reports whether the epochs of a job are images.
func IsJob(job string) bool { return strings.HasPrefix(job, jobPrefix) }

var errNoProgram = errors.New("it is no program that runs through libholdfast-opencl, nor a CUDA program that can be " +
	"paused, nor has it started one")

// Programs returns those that use OpenCL of a process and all that it has started, and those that use CUDA. There is
// one, or an error.
func Programs(pid int) (served, cuda []int, err error) {
	if cuda, err = pause.Find([]int{pid}); err != nil {
		cuda = nil
	}
	served, err = pause.FindAt(opencl.DoorPrefix, errNoProgram, []int{pid})
	if len(cuda) > 0 && errors.Is(err, errNoProgram) {
		err = nil
	}
	return served, cuda, err
}

// Take takes an image of a process and of all that it has started, and commits it. After an error, and without Kill,
// they go on.
func Take(ctx context.Context, pid int, o Options) (t Taken, err error) {
	tree, served, cuda, err := settled(pid)
	if err != nil {
		return t, err
	}
	if slices.Contains(tree, os.Getpid()) {
		return t, errors.New("this command is among what it has started: start the command elsewhere, or name the " +
			"program itself")
	}
	if Outside(pid) {
		return t, errors.New("its session began outside of this container, which CRIU refuses: start it by setsid")
	}
	if child.Name(pid) != child.NameHere(pid) {
		return t, errors.New("it is in another PID namespace than this command or its /proc: take the image there " +
			"(nsenter --target PID --pid --mount)")
	}
	run := make([]byte, 16)
	_, _ = rand.Read(run) // it never fails
	name, err := os.ReadFile(proc(pid, "comm"))
	if err != nil {
		return t, err
	}
	t.Program = string(name[:len(name)-1])
	host, err := os.Hostname()
	if err != nil {
		return t, err
	}
	store, err := storage.Open(ctx, storage.Options{Job: JobOf(t.Program), Size: 1, Node: host,
		Run: fmt.Sprintf("%x", run), Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: o.Dir, Create: true,
			Keep: o.Keep}}})
	if other := new(storage.JobError); errors.As(err, &other) {
		return t, fmt.Errorf("%s is for images of another program (%s): give each its own directory", o.Dir,
			strings.TrimPrefix(other.Have, jobPrefix))
	}
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	t.Lacks = lacks(tree)
	last, err := store.Highest(ctx)
	if err != nil {
		return t, err
	}
	t.Epoch = last + 1
	first := last == 0
	defer func() {
		if err != nil && first { // another program may have the directory
			err = errors.Join(err, os.Remove(filepath.Join(o.Dir, jobFile)))
		}
	}()
	locked, err := lock(ctx, filepath.Join(o.Dir, lockFile), o.Wait)
	if err != nil {
		return t, err
	}
	defer locked.Close()
	dir := filepath.Join(o.Dir, work)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f, err := hold(tree)
	if err != nil {
		return t, err
	}
	f.locked = locked
	defer f.close()
	defer func() { err = errors.Join(err, f.wake()) }() // after an error
	if err := f.stop(ctx, served, cuda, &o); err != nil {
		return t, err
	}
	began := f.since
	sections, release, err := save(&o, f, dir, t.Program)
	defer release()
	if err != nil {
		return t, err
	}
	if !o.Kill {
		if err := f.goOn(); err != nil {
			return t, fmt.Errorf("no image was taken: %w", err)
		}
		t.Stopped = time.Since(began)
	}
	info, err := store.Put(ctx, t.Epoch, storage.LevelGlobal, sections)
	if err == nil {
		err = errors.Join(store.Commit(ctx, t.Epoch, storage.LevelGlobal, []storage.ShardInfo{info}),
			store.Committed(t.Epoch, storage.LevelGlobal))
	}
	if err != nil {
		return t, errors.Join(err, store.Discard(context.WithoutCancel(ctx), t.Epoch, storage.LevelGlobal))
	}
	first = false
	t.Bytes, t.Stored = info.Bytes, info.Stored
	if o.Kill {
		f.asleep = false
		t.Stopped = time.Since(began)
		if err := f.end(); err != nil {
			return t, fmt.Errorf("image %d was taken, but the program not ended: %w", t.Epoch, err)
		}
	}
	err = store.PinByRule(ctx, t.Epoch, storage.LevelGlobal, o.KeepEvery, o.KeepInterval)
	_, perr := store.Prune(ctx, storage.LevelGlobal)
	return t, errors.Join(err, perr)
}

// lock waits up to a limit until no other process has a lock. It is free when this process has ended, and those that
// it gives it to.
func lock(ctx context.Context, path string, limit time.Duration) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	end := time.After(limit)
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-end:
			err = fmt.Errorf("%s is still locked after %v by %s, for another image: end that, or wait longer for it "+
				"(--wait)", path, limit, strings.Join(users(f), ", "))
			return nil, errors.Join(err, f.Close())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// users names the other processes that have a file open.
func users(f *os.File) (list []string) {
	st, err := f.Stat()
	for pid, link := range descriptors {
		other, oerr := os.Stat(link) // it may have ended
		if err == nil && oerr == nil && pid != os.Getpid() && os.SameFile(st, other) {
			list = append(list, fmt.Sprintf("process %d (%s)", pid, pause.ProgramOf(pid)))
		}
	}
	return list
}

// descriptors yields those of all processes: whose one is, and its link in /proc.
func descriptors(yield func(pid int, link string) bool) {
	all, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is good
	for _, link := range all {
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2]) // a number
		if !yield(pid, link) {
			return
		}
	}
}

// Outside reports whether the session of a process, 0 for this one, began outside of this PID namespace.
func Outside(pid int) bool {
	sid, err := unix.Getsid(pid)
	return err == nil && sid == 0
}

// end kills a process and waits for its end. It also waits up to 5 s for its parent to reap it, which frees its number.
func end(pid, process int) error {
	if err := unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	list := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
	if n, err := unix.Poll(list, 10_000); err != nil || n == 0 {
		return errors.Join(errors.New("it does not end"), err)
	}
	awaitFree(pid, false)
	return nil
}

// awaitFree waits up to 5 s until the number of a process or a thread that has ended, or of any, is free.
func awaitFree(pid int, any bool) (free bool) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if !inUse(pid) {
			return true
		}
		if p, err := child.Look(pid); err == nil && !any && !p.Ended {
			return false // it lives
		}
	}
	return false
}

// inUse reports whether the kernel has a number for anything: a process, a thread, a group or a session. /proc does
// not show the last two, nor a thread that has ended and still holds its number.
func inUse(number int) bool {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETOWN, number) // the kernel looks the number up
	return !errors.Is(err, unix.ESRCH)
}

// settled returns a process and all that it has started, and those among them that use OpenCL and CUDA. It waits up to
// 5 s for the helpers of those that have begun with OpenCL.
func settled(pid int) (tree, served, cuda []int, err error) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if served, cuda, err = Programs(pid); err != nil {
			return nil, nil, nil, err
		}
		tree = child.Tree(pid)
		lone, err := connected(tree, served)
		if lone == 0 || err != nil {
			return tree, served, cuda, err
		}
		if time.Now().After(end) {
			return nil, nil, nil, fmt.Errorf("process %d (%s) is connected to one that would not be in the image", lone,
				pause.ProgramOf(lone))
		}
	}
}

// connected returns a process of a tree that has a connection to another one and no helper; 0: there is none.
func connected(tree, served []int) (pid int, err error) {
	if len(tree) == len(served) {
		return 0, nil
	}
	all, err := peers()
	if err != nil {
		return 0, err
	}
	of, inside := map[int]map[uint64]bool{}, map[uint64]bool{}
	for _, p := range tree {
		if isHelper(p) { // that is about to leave the tree
			return p, nil
		}
		if of[p], err = new(record).look(p); err != nil {
			return 0, err
		}
		maps.Copy(inside, of[p])
	}
	for _, p := range served { // a process that it has forked has its connections, too
		for s := range of[p] {
			inside[all[s]] = true
		}
	}
	for _, p := range tree {
		for s := range of[p] {
			if peer := all[s]; peer != 0 && !inside[peer] {
				return p, nil
			}
		}
	}
	return 0, nil
}

// lacks names pipes of the standard input and output of processes that lead to others, terminals, and mapped files.
func lacks(tree []int) (list []string) {
	for _, pid := range tree {
		files, _ := mappedFiles(pid, true) // it may have ended
		for _, path := range slices.Sorted(maps.Keys(files)) {
			list = append(list, fmt.Sprintf("process %d (%s) has mapped %s and writes to it, which is not in the "+
				"image: once restored, it finds what is there then", pid, pause.ProgramOf(pid), path))
		}
	}
	type end struct {
		pipe  string
		reads bool
	}
	look := func(link string) (e end) {
		e.pipe, _ = os.Readlink(link)
		if st, err := os.Lstat(link); err == nil { // else it has ended
			e.reads = st.Mode()&0o400 != 0
		}
		return e
	}
	what := map[end]string{} // the other ends
	for _, pid := range tree {
		terminal := false
		for fd, text := range []string{"input is a pipe from", "output is a pipe to", "error is a pipe to"} {
			e := look(proc(pid, fmt.Sprint("fd/", fd)))
			terminal = terminal || strings.HasPrefix(e.pipe, "/dev/pts/")
			if strings.HasPrefix(e.pipe, "pipe:") {
				e.reads = !e.reads
				what[e] = cmp.Or(what[e],
					fmt.Sprintf("process %d (%s): its standard %s", pid, pause.ProgramOf(pid), text))
			}
		}
		if terminal {
			list = append(list, fmt.Sprintf("process %d (%s): its standard input or output is a terminal, which is "+
				"not restored: start it with these in files", pid, pause.ProgramOf(pid)))
		}
	}
	if len(what) == 0 {
		return list
	}
	for pid, link := range descriptors {
		e := look(link)
		if text := what[e]; text != "" && !slices.Contains(tree, pid) && !isHelper(pid) {
			list = append(list, fmt.Sprintf("%s process %d (%s), which is not in the image: once restored, it ends "+
				"there", text, pid, pause.ProgramOf(pid)))
			delete(what, e)
		}
	}
	return list
}

// isHelper reports whether a process is one that serves an OpenCL program.
func isHelper(pid int) bool {
	exe, err := os.Readlink(proc(pid, "exe"))
	b, _ := os.ReadFile(proc(pid, "cmdline")) // it may have ended
	args := strings.Split(string(b), "\x00")
	return err == nil && strings.HasPrefix(filepath.Base(exe), "holdfast") && len(args) > 1 && args[1] == "opencl"
}

type family struct {
	tree   []int // itself first
	fds    []int // descriptors of these
	stills []*opencl.Still
	cuda   []int // those that use CUDA: they are paused
	asleep bool  // for this image; false: they were paused before, and stay so
	waker  *waker
	locked *os.File
	since  time.Time
}

// hold has descriptors of processes, that no other process takes the place of one that has ended.
func hold(tree []int) (*family, error) {
	f := &family{}
	for _, pid := range tree {
		if err := f.add(pid); err != nil {
			f.close()
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return f, nil
}

func (f *family) add(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		f.tree, f.fds = append(f.tree, pid), append(f.fds, fd)
	}
	return err
}

// stop has all that use OpenCL or CUDA stand still.
func (f *family) stop(ctx context.Context, served, cuda []int, o *Options) error {
	if err := f.rest(ctx, cuda, o); err != nil {
		return err
	}
	for _, pid := range served {
		s, err := opencl.Stop(ctx, pid, o.Wait)
		if err != nil {
			if len(f.tree) > 1 {
				err = fmt.Errorf("process %d (%s): %w", pid, pause.ProgramOf(pid), err)
			}
			return err
		}
		f.stills = append(f.stills, s)
		if f.since.IsZero() {
			f.since = s.Since
		}
	}
	return nil
}

// rest pauses those that use CUDA. The memory of their devices is their own then, and they have no connection to this
// command.
func (f *family) rest(ctx context.Context, cuda []int, o *Options) error {
	if len(cuda) == 0 {
		return nil
	}
	g, err := pause.Open(ctx, cuda)
	if err != nil {
		return err
	}
	defer g.Close()
	f.cuda, f.since = cuda, time.Now()
	list, err := g.Programs()
	if err != nil || !slices.ContainsFunc(list, func(p pause.Program) bool { return p.State != "paused" }) {
		return err
	}
	if f.waker, err = startWaker(o.Self, cuda, "", f.locked); err != nil {
		return err
	}
	if err := g.Pause(ctx, o.Wait); err != nil {
		return err
	}
	var longest float64
	for _, r := range g.Results() {
		longest = max(longest, r.Seconds["copy"]+r.Seconds["release"])
	}
	f.asleep, f.since = true, time.Now().Add(-time.Duration(longest*float64(time.Second)))
	return nil
}

// wake has those that use CUDA go on, if they were paused for this image.
func (f *family) wake() error {
	if !f.asleep {
		return nil
	}
	f.asleep = false
	err := resume(f.cuda, nil)
	f.rouse()
	if err != nil && !errors.Is(err, pause.ErrNotPaused) { // by another command
		return fmt.Errorf("it stays paused, holdfast resume may have it go on: %w", err)
	}
	return nil
}

// rouse ends the waker: the programs go on, or have ended.
func (f *family) rouse() {
	f.waker.leave()
	f.waker = nil
}

// paused returns for how many seconds those that use CUDA have been paused.
func (f *family) paused() (seconds []float64, err error) {
	if len(f.cuda) == 0 {
		return nil, nil
	}
	g, err := pause.Open(context.Background(), f.cuda)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	list, err := g.Programs()
	for _, p := range list {
		if err == nil && p.State != "paused" {
			err = awake(p.PID)
		}
		seconds = append(seconds, p.Seconds)
	}
	return seconds, err
}

func awake(pid int) error {
	return fmt.Errorf("another command has had process %d (%s) go on meanwhile", pid, pause.ProgramOf(pid))
}

// dump has CRIU write the processes. Those that use CUDA are paused all the time, or there is an error: nothing else
// has the contents of their devices.
func (f *family) dump(o *Options, dir string, external []uint64, with []*os.File) error {
	before, err := f.paused()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := o.CRIU.dump(dir, f.tree[0], external, with); err != nil {
		return err
	}
	least := time.Since(began).Seconds() - 0.002 // the program rounds
	after, err := f.paused()
	for i := range before {
		if err == nil && after[i]-before[i] < least {
			err = awake(f.cuda[i])
		}
	}
	return err
}

// moves reads the GPUs that programs are to get; nil: those that they had.
func moves(ctx context.Context, gpu string) (*pause.Moves, error) {
	if gpu == "" {
		return nil, nil
	}
	return pause.ParseMoves(ctx, gpu)
}

// resume has paused programs that use CUDA take their devices again, or others.
func resume(cuda []int, to *pause.Moves) error {
	g, err := pause.Open(context.Background(), cuda)
	if err == nil {
		defer g.Close()
		err = g.Resume(to)
	}
	return err
}

func (f *family) goOn() (err error) {
	for _, s := range f.stills {
		err = errors.Join(err, s.GoOn())
	}
	return errors.Join(err, f.wake())
}

// end kills all processes, and those that they have started meanwhile, and waits for their ends.
func (f *family) end() (err error) {
	for more := true; more; {
		err = f.signal(unix.SIGSTOP)
		tree := child.Tree(f.tree[0])
		there := unix.PidfdSendSignal(f.fds[0], 0, nil, 0) == nil // else the number may be another process's
		more = false
		for _, pid := range tree {
			if there && !slices.Contains(f.tree, pid) && f.add(pid) == nil { // else it has ended
				more = true
			}
		}
	}
	err = errors.Join(err, f.signal(unix.SIGKILL))
	for i, fd := range f.fds {
		err = errors.Join(err, end(f.tree[i], fd))
	}
	return err
}

func (f *family) signal(s unix.Signal) (err error) {
	for _, fd := range f.fds {
		if e := unix.PidfdSendSignal(fd, s, nil, 0); !errors.Is(e, unix.ESRCH) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func (f *family) close() {
	f.rouse()
	for _, s := range f.stills {
		s.Close()
	}
	for _, fd := range f.fds {
		_ = unix.Close(fd) // it was only looked at
	}
}

// save has CRIU write the processes into a folder, and gives the sections of their image. release closes their files.
func save(o *Options, f *family, dir, name string) (list []storage.Section, release func(), err error) {
	var files []*os.File
	release = func() { closeAll(files) }
	r := &record{Program: name, CRIU: o.CRIU.Version, Command: o.Command, CUDA: f.cuda, Resume: f.asleep}
	if len(f.cuda) > 0 {
		r.Door = child.Name(f.cuda[0])
	}
	if err := r.identify(f.tree); err != nil {
		return nil, release, err
	}
	sockets := map[int]map[uint64]bool{}
	for _, pid := range f.tree {
		if sockets[pid], err = r.look(pid); err != nil {
			return nil, release, err
		}
	}
	var external []uint64
	var memories [][]*os.File
	for _, s := range f.stills {
		p := program{PID: s.PID}
		areas, err := p.describe(s, sockets[s.PID])
		files, memories = append(files, areas...), append(memories, areas)
		if err != nil {
			return nil, release, err
		}
		external = append(external, p.Control)
		for _, c := range p.Connections {
			external = append(external, c.Socket)
		}
		r.Programs = append(r.Programs, p)
	}
	if err := r.check(); err != nil {
		return nil, release, err
	}
	with := []*os.File{f.locked}
	if f.waker != nil {
		with = append(with, f.waker.to)
	}
	err = f.dump(o, dir, external, with)
	for _, s := range f.stills {
		if err == nil {
			err = s.Filled()
		}
	}
	if err != nil {
		return nil, release, err
	}
	if r.Numbers, err = numbers(dir, f.tree); err != nil {
		return nil, release, err
	}
	open := filepath.Join(dir, filesImage)
	if err := errors.Join(r.measure(open), adapt(open, nil)); err != nil {
		return nil, release, err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, release, err
	}
	list = []storage.Section{{Name: recordSection, Size: int64(len(text)), Source: storage.Bytes(text)}}
	add := func(name string, f *os.File) {
		n, e := f.Seek(0, io.SeekEnd)
		err = errors.Join(err, e)
		list = append(list, storage.Section{Name: name, Size: n, Source: f})
	}
	for n, s := range f.stills {
		add(stateOf(n), s.State)
		for i, m := range r.Programs[n].Areas {
			if m.Address == 0 {
				add(areaOf(n, i), memories[n][i])
			}
		}
	}
	made, e := filepath.Glob(filepath.Join(dir, "*.img"))
	err = errors.Join(err, e)
	for _, path := range made {
		f, e := os.Open(path)
		if err = errors.Join(err, e); e == nil {
			files = append(files, f)
			add(criuPrefix+filepath.Base(path), f)
		}
	}
	return list, release, err
}

// numbers returns those of the processes and threads that CRIU has written: until then a program that is paused can
// start threads. The processes must be those that were there before.
func numbers(dir string, tree []int) (list []int, err error) {
	made, err := filepath.Glob(filepath.Join(dir, "ids-*.img"))
	if err == nil && len(made) > len(tree) {
		return nil, errors.New("it has started processes meanwhile")
	}
	cores, e := filepath.Glob(filepath.Join(dir, "core-*.img"))
	for _, core := range cores {
		var n int
		if _, e := fmt.Sscanf(filepath.Base(core), "core-%d.img", &n); e == nil {
			list = append(list, n)
		}
	}
	for _, pid := range tree {
		if !slices.Contains(list, pid) {
			return nil, fmt.Errorf("process %d has ended meanwhile", pid)
		}
	}
	return list, errors.Join(err, e)
}

// describe fills in all of a program that stands still, with these sockets. It returns the areas, of which the caller
// closes the files.
func (r *program) describe(still *opencl.Still, sockets map[uint64]bool) (areas []*os.File, err error) {
	for _, f := range still.Areas {
		own, err := shm.Dup(f)
		if err != nil {
			return areas, err
		}
		areas = append(areas, own)
		r.Areas = append(r.Areas, memory{})
	}
	connections := still.Connections
	var fresh []*os.File
	defer func() { closeAll(fresh) }()
	err = peek(still.Control, 1, func(b []byte, files []*os.File) error {
		m := message{Byte: b[0]}
		brings := b[0] == 'M' || b[0] == 'L'
		if !brings { // the kernel may give those of the next byte, which gives them again
			closeAll(files)
			files = nil
		}
		if brings && len(files) != 1 {
			closeAll(files)
			return fmt.Errorf("byte %q with %d files on the control connection", b[0], len(files))
		}
		switch b[0] {
		case 'M':
			areas = append(areas, files[0])
			r.Areas = append(r.Areas, memory{New: true})
			m.Area = len(r.Areas)
		case 'L':
			fresh = append(fresh, files[0])
			connections = append(connections[:len(connections):len(connections)], files[0])
			m.Connection = len(connections)
		}
		r.Asked = append(r.Asked, m)
		return nil
	})
	if err != nil {
		return areas, err
	}
	all, err := peers()
	if err != nil {
		return areas, err
	}
	if r.Control, err = programEnd(still.Control, all, sockets); err != nil {
		return areas, err
	}
	for i, f := range connections {
		c := connection{New: i >= len(still.Connections)}
		if c.Socket, err = programEnd(f, all, sockets); err != nil {
			return areas, err
		}
		if err := peek(f, 1<<16, func(b []byte, _ []*os.File) error {
			c.Pending = append(c.Pending, b...)
			return nil
		}); err != nil {
			return areas, err
		}
		r.Connections = append(r.Connections, c)
	}
	mapped, err := mappings(still.PID)
	if err != nil {
		return areas, err
	}
	for i, f := range areas {
		if err := r.Areas[i].find(f, mapped); err != nil {
			return areas, err
		}
	}
	if err := r.Ring.find(still.Ring, mapped); err != nil {
		return areas, err
	}
	return areas, nil
}

// programEnd returns the number of the program's end of a connection.
func programEnd(f *os.File, peers map[uint64]uint64, sockets map[uint64]bool) (uint64, error) {
	own, err := inode(f)
	if err != nil {
		return 0, err
	}
	if n := peers[own]; sockets[n] {
		return n, nil
	}
	return 0, errors.New("a connection to its helper is not the program's")
}
