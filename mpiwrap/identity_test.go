package mpiwrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

// ranks runs f on n simulated ranks and joins the errors.
func ranks(n int, f func(w *Comm) error) error {
	world := sim.New(n, sim.Options{})
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			defer world.Finish(i)
			c, err := over(world.Rank(i), nil)
			if err == nil {
				err = f(c)
			}
			if err != nil {
				errs[i] = fmt.Errorf("rank %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func dupHalo(w *Comm) (*Comm, error)    { return w.Dup() }
func dupControl(w *Comm) (*Comm, error) { return w.Dup() }
func dupHelper(w *Comm) (*Comm, error)  { return w.Dup() }
func helpedHalo(w *Comm) (*Comm, error) {
	c, err := dupHelper(w)
	return c, err
}
func helpedControl(w *Comm) (*Comm, error) {
	c, err := dupHelper(w)
	return c, err
}
func groupOne(w *Comm) (*Comm, error) { return w.CreateGroup([]int{0, 1}, 4) }
func groupTwo(w *Comm) (*Comm, error) { return w.CreateGroup([]int{0, 1}, 4) }

type maker = func(w *Comm) (*Comm, error)

// mailed runs makers in order, sends the number of each maker over what it made, from
// rank 0 to rank 1, and returns the records. edit may change what rank 1's says.
func mailed(t *testing.T, edit func(r *record), makers ...maker) [][]byte {
	t.Helper()
	recs := make([][]byte, 2)
	if err := ranks(2, func(w *Comm) error {
		for i, mk := range makers {
			c, err := mk(w)
			if err == nil && w.Rank() == 0 {
				err = Send(c, []int{i}, 1, 5)
			}
			if err != nil {
				return err
			}
		}
		if _, err := w.Endpoint().Drain(context.Background()); err != nil {
			return err
		}
		b, err := w.Endpoint().SaveMailbox()
		if err == nil && edit != nil {
			var r record
			if err = r.decode(b); err == nil {
				edit(&r)
				b, err = r.encode()
			}
		}
		recs[w.Rank()] = b
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return recs
}

// TestSwappedCommunicators: communicators that are made in another order than before,
// or by others that were not there, never get messages that wait for another.
func TestSwappedCommunicators(t *testing.T) {
	rebuilt := func(r *record) { // other lines, another build
		r.Build = "other"
		for i := range r.Comms {
			for k, p := range r.Comms[i].How.Path {
				r.Comms[i].How.Path[k] = p + "7"
			}
		}
	}
	cases := []struct {
		name   string
		edit   func(*record)
		before []maker
		now    []maker
		wrong  bool
	}{
		{"as before", nil, []maker{dupHalo, dupControl}, []maker{dupHalo, dupControl}, false},
		{"swapped", nil, []maker{dupHalo, dupControl}, []maker{dupControl, dupHalo}, true},
		{"swapped through a helper", nil, []maker{helpedHalo, helpedControl}, []maker{helpedControl, helpedHalo}, true},
		{"through a helper", nil, []maker{helpedHalo, helpedControl}, []maker{helpedHalo, helpedControl}, false},
		{"a helper called elsewhere", nil, []maker{helpedHalo}, []maker{helpedControl}, false},
		{"a temporary one", nil, []maker{dupHalo}, []maker{dupControl, dupHalo}, true},
		{"groups as before", nil, []maker{groupOne, groupTwo}, []maker{groupOne, groupTwo}, false},
		{"groups swapped", nil, []maker{groupOne, groupTwo}, []maker{groupTwo, groupOne}, true},
		{"rebuilt", rebuilt, []maker{dupHalo, dupControl}, []maker{dupHalo, dupControl}, false},
		{"rebuilt and swapped", rebuilt, []maker{dupHalo, dupControl}, []maker{dupControl, dupHalo}, true},
		{"rebuilt, through a helper", rebuilt, []maker{helpedHalo, helpedControl}, []maker{helpedHalo, helpedControl},
			false},
		{"rebuilt and swapped through a helper", rebuilt, []maker{helpedHalo, helpedControl},
			[]maker{helpedControl, helpedHalo}, true},
		{"rebuilt and a temporary one", rebuilt, []maker{dupHalo}, []maker{dupControl, dupHalo}, true},
		{"rebuilt, in one function", rebuilt, []maker{dupHalo, dupHalo}, []maker{dupHalo, dupHalo}, false},
	}
	for _, k := range cases {
		recs := mailed(t, k.edit, k.before...)
		for _, early := range []bool{false, true} { // before or after Restore
			t.Run(fmt.Sprintf("%s/early %v", k.name, early), func(t *testing.T) {
				err := ranks(2, func(w *Comm) error {
					if !early {
						if err := loadMailbox(w.Endpoint(), recs[w.Rank()]); err != nil {
							return err
						}
					}
					var made []*Comm
					for _, mk := range k.now {
						c, err := mk(w)
						if err != nil {
							return err
						}
						made = append(made, c)
					}
					if early {
						if err := loadMailbox(w.Endpoint(), recs[w.Rank()]); err != nil {
							return err
						}
					}
					if w.Rank() == 0 {
						return nil
					}
					for i, c := range made {
						got := []int{0}
						if _, err := Recv(c, got, 0, 5); err != nil {
							return err
						}
						if got[0] != i {
							t.Errorf("communicator %d got the message of %d", i, got[0])
						}
					}
					return nil
				})
				switch {
				case !k.wrong && err != nil:
					t.Error(err)
				case k.wrong && (!errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "identity_test.go:")):
					t.Errorf("got %v, want ErrMismatch with the places", err)
				}
			})
		}
	}
}

// rows splits off a communicator, duplicates it twice over and frees those between.
func rows(w *Comm) (*Comm, error) {
	row, err := w.Split(0, 0)
	if err != nil {
		return nil, err
	}
	mid, err := row.Dup()
	if err != nil {
		return nil, err
	}
	c, err := mid.Dup()
	return c, errors.Join(err, mid.Free(), row.Free())
}

// TestMadeOnFreed: messages for communicators that were made on freed ones come to the same
// again, whether these are made before or after Restore, also at the restart after next.
func TestMadeOnFreed(t *testing.T) {
	makers := []maker{rows, rows, dupHalo}
	for early := range len(makers) + 1 { // made before Restore
		recs := mailed(t, nil, makers...)
		for life := range 3 {
			next := make([][]byte, 2)
			if err := ranks(2, func(w *Comm) error {
				var made []*Comm
				for i := range len(makers) + 1 {
					if i == early {
						if err := loadMailbox(w.Endpoint(), recs[w.Rank()]); err != nil {
							return err
						}
					}
					if i == len(makers) {
						break
					}
					c, err := makers[i](w)
					if err != nil {
						return err
					}
					made = append(made, c)
				}
				for i, c := range made {
					got := []int{-1}
					if w.Rank() == 0 {
						if err := Send(c, []int{i}, 1, 5); err != nil {
							return err
						}
					} else if _, there, err := c.Iprobe(0, 5); err != nil || !there {
						return fmt.Errorf("nothing waits on %s: %w", c.Name(), err)
					} else if _, err := Recv(c, got, 0, 5); err != nil || got[0] != i {
						return fmt.Errorf("communicator %d got the message of %d: %w", i, got[0], err)
					}
				}
				if _, err := w.Endpoint().Drain(context.Background()); err != nil {
					return err
				}
				var err error
				next[w.Rank()], err = w.Endpoint().SaveMailbox()
				return err
			}); err != nil {
				t.Fatalf("%d made before Restore, life %d: %v", early, life, err)
			}
			recs = next
		}
	}
}

// TestNoMailNoRefusal: a communicator without waiting messages may be made elsewhere.
func TestNoMailNoRefusal(t *testing.T) {
	recs := mailed(t, func(r *record) { r.Boxes = nil }, dupHalo)
	if err := ranks(2, func(w *Comm) error {
		if err := loadMailbox(w.Endpoint(), recs[w.Rank()]); err != nil {
			return err
		}
		_, err := dupControl(w)
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestTemporaryBetween: a communicator that is made elsewhere counts as new where nothing
// waits for the one whose turn it is, and is found again at the restart after next.
func TestTemporaryBetween(t *testing.T) {
	recs := mailed(t, func(r *record) { r.Boxes = r.Boxes[:min(len(r.Boxes), 0)] }, dupHalo)
	for life := range 2 {
		next := make([][]byte, 2)
		if err := ranks(2, func(w *Comm) error {
			if err := loadMailbox(w.Endpoint(), recs[w.Rank()]); err != nil {
				return err
			}
			if life == 0 {
				tmp, err := dupControl(w)
				if err != nil {
					return err
				}
				if err := tmp.Free(); err != nil {
					return err
				}
			}
			c, err := dupHelper(w)
			if err != nil {
				return err
			}
			got := []int{-1}
			if n, _ := w.Endpoint().Mailbox(); n > 0 {
				if _, err := Recv(c, got, 0, 5); err != nil || got[0] != 9 {
					return fmt.Errorf("got %v: %w", got, err)
				}
			}
			if w.Rank() == 0 {
				if err := Send(c, []int{9}, 1, 5); err != nil {
					return err
				}
			}
			if _, err := w.Endpoint().Drain(context.Background()); err != nil {
				return err
			}
			next[w.Rank()], err = w.Endpoint().SaveMailbox()
			return err
		}); err != nil {
			t.Fatal(err)
		}
		recs = next
	}
	if err := ranks(2, func(w *Comm) error {
		if err := loadMailbox(w.Endpoint(), recs[w.Rank()]); err != nil {
			return err
		}
		_, err := dupControl(w)
		return err
	}); !errors.Is(err, ErrMismatch) {
		t.Errorf("made elsewhere, with messages waiting: got %v, want ErrMismatch", err)
	}
}

// TestNewOrderStays: a program that has changed the order of its communicators, when
// no message waited in them, is restarted in the new order from then on.
func TestNewOrderStays(t *testing.T) {
	makers := map[string]maker{"halo": dupHalo, "control": dupControl}
	recs := mailed(t, func(r *record) { r.Boxes = nil }, dupHalo, dupControl)
	life := func(order ...string) error {
		next := make([][]byte, 2)
		err := ranks(2, func(w *Comm) error {
			if err := loadMailbox(w.Endpoint(), recs[w.Rank()]); err != nil {
				return err
			}
			waiting, _ := w.Endpoint().Mailbox()
			waiting += len(w.st.restored.Boxes)
			for i, name := range order {
				c, err := makers[name](w)
				if err != nil {
					return err
				}
				got := []byte(name)
				if waiting > 0 {
					if _, err := Recv(c, got, 0, 5); err != nil || string(got) != name {
						return fmt.Errorf("%s got the message of %s: %w", name, got, err)
					}
				}
				if w.Rank() == 0 {
					if err := Send(c, []byte(name), 1, 5); err != nil {
						return fmt.Errorf("message %d: %w", i, err)
					}
				}
			}
			if _, err := w.Endpoint().Drain(context.Background()); err != nil {
				return err
			}
			var err error
			next[w.Rank()], err = w.Endpoint().SaveMailbox()
			return err
		})
		if err == nil {
			recs = next
		}
		return err
	}
	for range 3 {
		if err := life("control", "halo"); err != nil {
			t.Fatal(err)
		}
	}
	if err := life("halo", "control"); !errors.Is(err, ErrMismatch) {
		t.Errorf("in the first order, with messages waiting: got %v, want ErrMismatch", err)
	}
}

// TestRanksMakeThemInDifferentOrders: each rank would wait for the other on another
// communicator.
func TestRanksMakeThemInDifferentOrders(t *testing.T) {
	err := ranks(3, func(w *Comm) error {
		order := []maker{dupHalo, dupControl}
		if w.Rank() == 1 {
			order = []maker{dupControl, dupHalo}
		}
		for _, mk := range order {
			if _, err := mk(w); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, ErrMismatch) || strings.Count(err.Error(), "rank 1: Dup at identity_test.go") != 3 {
		t.Errorf("got %v, want ErrMismatch on all ranks, with the places", err)
	}
	// Roles with calls of their own are no swap.
	if err := ranks(3, func(w *Comm) error {
		for range 20 {
			mk := dupHalo
			if w.Rank() == 1 {
				mk = dupControl
			}
			if _, err := mk(w); err != nil {
				return err
			}
		}
		_, err := helpedHalo(w)
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestGroupsHaveNamesOfTheirOwn: groups with the same leader and tag, of different
// members or of the same members in another order, keep their messages apart.
func TestGroupsHaveNamesOfTheirOwn(t *testing.T) {
	lists := [][]int{{0, 1}, {0, 2}, {0, 1, 2}, {0, 2, 1}}
	each := func(w *Comm, do func(i int, g *Comm) error) error {
		for i, l := range lists {
			if !slices.Contains(l, w.Rank()) {
				continue
			}
			g, err := w.CreateGroup(l, 0)
			if err == nil {
				err = do(i, g)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	var names sync.Map
	recs := make([][]byte, 3)
	if err := ranks(3, func(w *Comm) error {
		err := each(w, func(i int, g *Comm) error {
			if other, there := names.LoadOrStore(g.Name(), i); there && other != i {
				t.Errorf("%s is the name of %v and %v", g.Name(), lists[other.(int)], lists[i])
			}
			if w.Rank() == 0 {
				return nil
			}
			return Send(g, []int{i}, 0, 3)
		})
		if err != nil {
			return err
		}
		if _, err := w.Endpoint().Drain(context.Background()); err != nil {
			return err
		}
		recs[w.Rank()], err = w.Endpoint().SaveMailbox()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := ranks(3, func(w *Comm) error {
		if err := loadMailbox(w.Endpoint(), recs[w.Rank()]); err != nil {
			return err
		}
		return each(w, func(i int, g *Comm) error {
			for from := 1; from < g.Size() && w.Rank() == 0; from++ {
				got := []int{-1}
				if _, err := Recv(g, got, from, 3); err != nil || got[0] != i {
					return fmt.Errorf("group %v got the message of %d: %w", lists[i], got[0], err)
				}
			}
			return nil
		})
	}); err != nil {
		t.Error(err)
	}
}

func TestFunctionNames(t *testing.T) {
	for in, want := range map[string]string{
		"main.main:10":                       "main.main",
		"main.main.func2:10":                 "main.main",
		"main.main.func2.1:3":                "main.main",
		"main.main.gowrap1:3":                "main.main",
		"example.org/a.b/c.(*T).run.func1:8": "example.org/a.b/c.(*T).run",
		"example.org/a/c.fold[...]:8":        "example.org/a/c.fold",
		"example.org/a/c.func1:8":            "example.org/a/c.func1",
		"example.org/a/c.function:8":         "example.org/a/c.function",
		"example.org/a/c.(*T).function3x:8":  "example.org/a/c.(*T).function3x",
	} {
		if got := funcOf(in); got != want {
			t.Errorf("funcOf(%q) = %q, want %q", in, got, want)
		}
	}
	if buildID() == "" {
		t.Error("this executable has no build ID")
	}
}

// TestRestart: what one life of a program leaves behind (a message, receives without an
// answer, a communicator, a window, a prepared request) is not there in the next, which
// names and counts from the beginning.
func TestRestart(t *testing.T) {
	err := ranks(3, func(w *Comm) error {
		for range 3 {
			world, end, err := w.Restart(nil)
			if err != nil {
				return err
			}
			pending, err := litter(world)
			if err := errors.Join(err, untouched(w), end()); err != nil {
				return err
			}
			if _, err := pending.Wait(); !errors.Is(err, ErrRequest) {
				return fmt.Errorf("a receive of a world that has ended: %v", err)
			}
			if err := world.Barrier(); !errors.Is(err, ErrFinalized) {
				return fmt.Errorf("a barrier in a world that has ended: %v", err)
			}
		}
		return errors.Join(untouched(w), w.Barrier())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// untouched says what has happened in a world.
func untouched(w *Comm) error {
	st, there, err := w.Iprobe(AnySource, AnyTag)
	if there || err != nil {
		return fmt.Errorf("there is a message: %+v %v", st, err)
	}
	e := w.Endpoint()
	for r := range w.Size() {
		if s, n := e.Sent(r), e.Received(r); s+n != 0 {
			return fmt.Errorf("%d messages sent to rank %d and %d received from it", s, r, n)
		}
	}
	if all := e.Collectives(); len(all) != 1 || all[0].Entered != 0 {
		return fmt.Errorf("communicators and their collectives: %+v", all)
	}
	return nil
}

// litter leaves things behind in a world in which nothing has happened, and returns a receive that
// is pending.
func litter(w *Comm) (*Request, error) {
	if err := untouched(w); err != nil {
		return nil, err
	}
	c, err := w.Dup()
	if err != nil {
		return nil, err
	}
	if c.Name() != "world.1" {
		return nil, fmt.Errorf("the first communicator is called %s", c.Name())
	}
	next := (w.Rank() + 1) % w.Size()
	pending, err1 := Irecv(w, make([]int, 1), AnySource, 9)
	_, err2 := Irecv(c, make([]int, 100), AnySource, 9)
	_, err3 := WinAllocate[int](c, 4)
	prepared, err4 := RecvInit(w, make([]int, 1), next, 3)
	return pending, errors.Join(err1, err2, err3, err4, Start(prepared), Send(w, []int{1}, next, 1),
		Send(c, []int{1, 2}, next, 2))
}

// loadMailbox puts a record in force.
func loadMailbox(e endpoint.Endpoint, record []byte) error {
	apply, err := e.StageMailbox(record)
	if err == nil {
		apply()
	}
	return err
}
