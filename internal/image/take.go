package image

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/opencl"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"github.com/holdfast-hpc/holdfast/storage"
	"golang.org/x/sys/unix"
)

// Options say how an image is taken.
type Options struct {
	Dir  string        // of images; it is made if only its last element is missing
	Keep int           // the newest so many images stay
	Kill bool          // the program ends with its image
	Wait time.Duration // for its commands
	CRIU CRIU

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
}

// work is the folder in a directory of images in which CRIU writes. Leftovers of a killed command are removed.
const work = "criu.part"

// jobPrefix begins the names of jobs whose epochs are images.
const jobPrefix = "image of "

// JobOf names the job whose epochs are images of a program.
func JobOf(program string) string { return jobPrefix + program }

// IsJob reports whether the epochs of a job are images.
func IsJob(job string) bool { return strings.HasPrefix(job, jobPrefix) }

// Take takes an image of a process, and commits it. After an error, and without Kill, the program goes on.
func Take(ctx context.Context, pid int, o Options) (t Taken, err error) {
	if children := pause.Children(pid); len(children) > 0 {
		return t, fmt.Errorf("it has started other processes (%s), which would not be in the image",
			strings.Trim(fmt.Sprint(children), "[]"))
	}
	if Outside(pid) {
		return t, errors.New("its session began outside of this container, which CRIU refuses: start it by setsid")
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
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	last, err := store.Highest(ctx)
	if err != nil {
		return t, err
	}
	t.Epoch = last + 1
	dir := filepath.Join(o.Dir, work)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	began := time.Now()
	still, err := opencl.Stop(ctx, pid, o.Wait)
	if err != nil {
		return t, err
	}
	defer still.Close()
	sections, release, err := save(&o, still, dir, t.Program)
	defer release()
	if err != nil {
		return t, err
	}
	if !o.Kill {
		if err := still.GoOn(); err != nil {
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
	t.Bytes, t.Stored = info.Bytes, info.Stored
	if o.Kill {
		t.Stopped = time.Since(began)
		if err := end(pid, still.Process); err != nil {
			return t, fmt.Errorf("image %d was taken, but the program not ended: %w", t.Epoch, err)
		}
	}
	err = store.PinByRule(ctx, t.Epoch, storage.LevelGlobal, o.KeepEvery, o.KeepInterval)
	_, perr := store.Prune(ctx, storage.LevelGlobal)
	return t, errors.Join(err, perr)
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
	awaitFree(pid)
	return nil
}

// awaitFree waits up to 5 s until the number of a process that has ended is free.
func awaitFree(pid int) (free bool) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(proc(pid, "stat"))
		if err != nil {
			return true
		}
		if i := strings.LastIndexByte(string(b), ')'); i < 0 || !strings.HasPrefix(string(b[i:]), ") Z") {
			return false // it lives
		}
	}
	return false
}

// save has CRIU write the process into a folder, and gives the sections of its image. release closes their files.
func save(o *Options, still *opencl.Still, dir, program string) (list []storage.Section, release func(), err error) {
	var files []*os.File
	release = func() { closeAll(files) }
	r := &record{Program: program, CRIU: o.CRIU.Version, Command: o.Command}
	memories, err := r.describe(still)
	files = append(files, memories...)
	if err != nil {
		return nil, release, err
	}
	sockets := []uint64{r.Control}
	for _, c := range r.Connections {
		sockets = append(sockets, c.Socket)
	}
	if err := o.CRIU.dump(dir, still.PID, sockets); err != nil {
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
	add(stateSection, still.State)
	for i, m := range r.Areas {
		if m.Address == 0 {
			add(areaPrefix+strconv.Itoa(i), memories[i])
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

// describe fills in all of a program that stands still. It returns the areas, of which the caller closes the files.
func (r *record) describe(still *opencl.Still) (areas []*os.File, err error) {
	if err := r.identify(still.PID); err != nil {
		return nil, err
	}
	sockets, err := r.look(still.PID)
	if err != nil {
		return nil, err
	}
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
	return areas, r.check()
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
