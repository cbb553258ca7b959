package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
)

// named holds the checkpoints of one name: a Checkpointer with directories and epochs of its own. The epochs count up;
// an array of the daemon's has the version that the program gave. Its only points are the program's calls for a
// checkpoint: it reads the program's memory only in these calls.
//
// It is used for at most one restart, and then for checkpoints. A second restart opens it again.
type named struct {
	*arenas
	name     string
	r        *rank // of the program
	ck       *coordinated.Proxy
	used     bool // it has restored, or taken a checkpoint
	version  int64
	verified storage.Epoch // that find has read whole
	shares   []byte        // the rank's shares of global arrays: see share
	arrays   map[string]*namedArray
	dirs     []namedDir

	points    atomic.Uint64
	requested atomic.Bool   // a checkpoint is asked of the program
	armed     chan struct{} // sent to when requested changes
	signals   chan os.Signal
	loaded    map[string]load // the data that a restart has read
}

// namedArray is an array as the checkpoints of a name have it: that of the program at a
// checkpoint, that of the checkpoint at a restart.
type namedArray struct {
	program.Array
	count atomic.Int64 // -1: not in this checkpoint
}

var _ coordinated.Program = (*named)(nil)

func (n *named) Rank() int                 { return n.r.rank }
func (n *named) Size() int                 { return n.r.size }
func (n *named) Points() uint64            { return n.points.Load() }
func (n *named) Signals() <-chan os.Signal { return n.signals }

// Messages is nil: a checkpoint with a name has no message in flight, or so the program promises.
func (n *named) Messages(program.Exchange) endpoint.Endpoint { return nil }

// Arm wakes the call that waits.
func (n *named) Arm(armed bool) {
	n.requested.Store(armed)
	select {
	case n.armed <- struct{}{}:
	default: // it is full: the call will look
	}
}

// Meet is over the control plane of the program's points, which knows a rank that is lost.
func (n *named) Meet(context.Context) ([]int, error) {
	return nil, n.Allgather(make([]byte, n.r.size), []byte{0})
}

// Allgather is over the same.
func (n *named) Allgather(all, mine []byte) error {
	blobs, err := n.r.s.ck.Gather(fmt.Sprintf("the opening of checkpoints %q", n.name), mine)
	if err != nil {
		return err
	}
	if joined := slices.Concat(blobs...); len(joined) == len(all) {
		copy(all, joined)
		return nil
	}
	return errUneven
}

// versionArray holds the version, sharesArray the shares; checkpoints without global arrays lack it. Names of the
// program do not begin so.
const (
	versionArray = "holdfast.version"
	sharesArray  = "holdfast.shares"
)

func reserved(name string) bool { return strings.HasPrefix(name, "holdfast.") }

// checkpointers returns all that the session has, that of the points last.
func (s *session) checkpointers() (list []*coordinated.Proxy) {
	s.each(func(ck *coordinated.Proxy, _ *arenas) { list = append(list, ck) })
	return list
}

// ofName returns the checkpoints of a name that were opened before, or nil.
func (s *session) ofName(name string) *named {
	i := slices.IndexFunc(s.named, func(n *named) bool { return n.name == name })
	if i < 0 {
		return nil
	}
	return s.named[i]
}

// openNamed returns the checkpoints of a name that all ranks request. With fresh it opens used ones again. Collective.
func (s *session) openNamed(ctx context.Context, m wire.Message, fresh bool) (*named, error) {
	removed, err := s.agree(m)
	if err != nil {
		return nil, err
	}
	if removed {
		s.renew(m.Text)
	}
	n := s.ofName(m.Text)
	if n == nil {
		n = &named{name: m.Text, r: s.rank}
		s.mu.Lock()
		s.named = append(s.named, n)
		s.mu.Unlock()
	}
	if n.ck != nil && n.used && fresh {
		if err := n.close(); err != nil {
			return nil, fmt.Errorf("end the checkpoints %q that are under way: %w", n.name, err)
		}
	}
	if n.ck != nil {
		return n, nil
	}
	return n, s.openName(ctx, n, int(m.Keep))
}

func (s *session) openName(ctx context.Context, n *named, keep int) error {
	s.mu.Lock()
	n.arenas = newArenas(s, s.retained[n.name])
	s.mu.Unlock()
	n.verified = 0
	n.used, n.version, n.arrays, n.loaded, n.shares = false, 0, map[string]*namedArray{}, nil, nil
	delete(s.retained, n.name)
	n.armed, n.signals = make(chan struct{}, 1), make(chan os.Signal)
	n.points.Store(0)
	n.requested.Store(false)
	opt := s.ck.Named(n.name, keep)
	ck, err := coordinated.OpenProxy(ctx, n, opt)
	if err == nil {
		n.dirs = dirsOf(opt, n.r.rank)
		err = ck.Protect(versionArray, &n.version)
	}
	s.mu.Lock()
	n.ck = ck
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("checkpoints %q: %w", n.name, err)
	}
	select {
	case <-s.disconnected: // the other ranks may not know
		ck.Abort(errDisconnected)
		return errDisconnected
	default:
		return nil
	}
}

// close waits until all that was taken is durable. Collective.
func (n *named) close() error {
	if n.ck == nil {
		return nil
	}
	err := errors.Join(n.ck.Close(), n.arenas.close())
	n.r.s.mu.Lock()
	n.ck = nil
	n.r.s.mu.Unlock()
	return err
}

// array finds an array of these checkpoints by name, or protects it.
func (n *named) array(name, layout string, elem int) (*namedArray, error) {
	a := n.arrays[name]
	if a == nil {
		a = &namedArray{Array: program.Array{Layout: layout, Elem: elem}}
		a.Count = a.count.Load
		if err := n.ck.Protect(name, &a.Array); err != nil {
			return nil, err
		}
		n.arrays[name] = a
	}
	if a.Layout != layout {
		return nil, fmt.Errorf("%q has elements of type %s, and had %s in a checkpoint before; protect it under "+
			"another name", name, layout, a.Layout)
	}
	return a, nil
}

// selectArrays makes the arrays that the program names those of the next checkpoint.
func (n *named) selectArrays(s *session, m wire.Message) error {
	for _, a := range n.arrays {
		a.count.Store(-1)
	}
	var global []*array
	take := func(a *array) error {
		if a.kind == wire.KindDivided {
			global = append(global, a)
		}
		to, err := n.array(a.name, a.Layout, a.Elem)
		if err == nil {
			to.ID = a.ID
			to.count.Store(a.count.Load())
		}
		return err
	}
	if m.All {
		for _, a := range s.arrays {
			if a.Absent() {
				continue
			}
			if err := take(a); err != nil {
				return err
			}
		}
		return n.share(global)
	}
	for _, id := range m.Picked {
		a := s.arrays[id]
		if a == nil || a.Absent() {
			return fmt.Errorf("%w: array %d is not protected", wire.ErrMalformed, id)
		}
		if err := take(a); err != nil {
			return err
		}
	}
	return n.share(global)
}

// share adds the rank's shares of global arrays to the checkpoint: a digest of its dimensions and boxes, and the name,
// a line each. Checkpoints with a name hold a rank's own elements in the order of its boxes, so that only the same
// share can be restored from them; those without a name are for others.
func (n *named) share(global []*array) error {
	if n.shares == nil && len(global) > 0 {
		n.shares = []byte{}
		if err := n.ck.Protect(sharesArray, &n.shares); err != nil {
			return err
		}
	}
	if n.shares != nil {
		var lines []string
		for _, a := range global {
			lines = append(lines, a.share()+" "+a.name+"\n")
		}
		slices.Sort(lines)
		n.shares = append(n.shares[:0], strings.Join(lines, "")...)
	}
	return nil
}

func (a *array) share() string {
	sum := sha256.Sum256(fmt.Append(nil, a.dims, a.parts))
	return hex.EncodeToString(sum[:])
}

// shareIn finds the share that a checkpoint has of an array; empty: it is no global one there.
func shareIn(shares []byte, name string) string {
	for line := range strings.Lines(string(shares)) {
		share, of, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if of == name {
			return share
		}
	}
	return ""
}

func (s *session) save(ctx context.Context, m wire.Message) (code int32, value uint64, err error) {
	if s.restart != nil {
		return 0, 0, fmt.Errorf("%w: a checkpoint was begun before hf_restart_end", wire.ErrMalformed)
	}
	n, err := s.openNamed(ctx, m, false)
	if err != nil {
		return 0, 0, err
	}
	err = s.ck.Agree(fmt.Sprintf("choose the arrays of checkpoint %q", n.name), n.selectArrays(s, m))
	if err != nil {
		return 0, 0, err
	}
	n.version = m.Version
	if !n.used {
		n.used = true
		n.ck.SkipRestore()
	}
	e, err := n.cut(ctx)
	return 0, uint64(e), err
}

// cut comes to points until an epoch has been taken there.
func (n *named) cut(ctx context.Context) (storage.Epoch, error) {
	entered := n.points.Load()
	before, _ := newestEpoch(n.ck)
	if n.r.rank == 0 {
		if err := n.ck.Request(ctx); err != nil {
			return 0, err
		}
	}
	for {
		e, err := n.r.s.awaitPoint(n.ck, before, n.requested.Load, n.armed)
		if e > 0 {
			n.points.Store(entered + 1) // some ranks may have come to one more; from here they are equal again
		}
		if e > 0 || err != nil {
			return e, err
		}
		n.points.Add(1)
		if err := n.ck.Point(ctx); err != nil {
			return 0, err
		}
	}
}

// noVersion marks an epoch whose version cannot be read.
const noVersion = math.MinInt64

var errNotBegun = fmt.Errorf("%w: hf_restart_begin was not called", wire.ErrMalformed)

// wait waits for the newest epochs at a level, or at all levels in use and for the work that follows there. Afterwards
// the directories do not change until the next request. With look it does not wait, and returns code 1 if there is
// nothing to wait for.
func (s *session) wait(ctx context.Context, level string, look bool) (code int32, value uint64, err error) {
	if look {
		over, cancel := context.WithCancel(ctx)
		cancel()
		ctx = over
	}
	at := storage.LevelNames()
	if level != "" {
		at = []string{level}
	}
	var errs []error
	if s.reconnected && !s.hasCut() {
		return 0, 0, errors.New("the node daemon that took the newest checkpoint has died, perhaps before it was " +
			"durable; take one and wait for that")
	}
	for _, ck := range s.checkpointers() {
		for _, l := range at {
			err := ck.Wait(ctx, l)
			if level == "" && (errors.As(err, new(*coordinated.OptionError)) || errors.Is(err, coordinated.ErrNotDue)) {
				continue
			}
			if look && errors.Is(err, context.Canceled) {
				return 0, 0, nil
			}
			same := func(e error) bool { return strings.Contains(e.Error(), err.Error()) }
			if err != nil && !slices.ContainsFunc(errs, same) {
				errs = append(errs, err)
			}
		}
		if level != "" {
			continue
		}
		if err := ck.WaitIdle(ctx); look && errors.Is(err, context.Canceled) {
			return 0, 0, nil
		} else if err != nil {
			errs = append(errs, err)
		}
	}
	code = 0
	if look {
		code = 1
	}
	return code, 0, errors.Join(errs...)
}
