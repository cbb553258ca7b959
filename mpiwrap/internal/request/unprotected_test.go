package request_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// receiving are the ways to have a receive pending without protecting it. Each
// posts one from rank 0 and returns its request and what reads its buffer.
var receiving = map[string]func(w *mpiwrap.Comm, source, tag int) (*mpiwrap.Request, func() int, error){
	"Irecv": func(w *mpiwrap.Comm, source, tag int) (*mpiwrap.Request, func() int, error) {
		buf := make([]int, 20)
		r, err := mpiwrap.Irecv(w, buf, source, tag)
		return r, func() int { return buf[0] }, err
	},
	"small Irecv": func(w *mpiwrap.Comm, source, tag int) (*mpiwrap.Request, func() int, error) {
		buf := make([]int, 1)
		r, err := mpiwrap.Irecv(w, buf, source, tag)
		return r, func() int { return buf[0] }, err
	},
	"NewRequest": func(w *mpiwrap.Comm, source, tag int) (*mpiwrap.Request, func() int, error) {
		buf := make([]int, 20)
		r := mpiwrap.NewRequest(w, buf)
		return r, func() int { return buf[0] }, r.Irecv(source, tag)
	},
	"RecvInit": func(w *mpiwrap.Comm, source, tag int) (*mpiwrap.Request, func() int, error) {
		buf := make([]int, 20)
		r, err := mpiwrap.RecvInit(w, buf, source, tag)
		if err != nil {
			return nil, nil, err
		}
		return r, func() int { return buf[0] }, mpiwrap.Start(r)
	},
}

// TestUnprotectedReceiveIsPostedAgain: the message of a receive that is not protected
// comes before, in or after the drain; a receive posted again after the restart gets it,
// and the next one the next message.
func TestUnprotectedReceiveIsPostedAgain(t *testing.T) {
	for name, post := range receiving {
		for _, when := range []string{"tested in a set", "drained", "later"} {
			for _, wild := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/wild %v", name, when, wild), func(t *testing.T) {
					source, tag := 0, 3
					if wild {
						source, tag = mpiwrap.AnySource, mpiwrap.AnyTag
					}
					s := newSaved(2)
					onSim(t, 2, func(w *mpiwrap.Comm) error {
						w.Endpoint().NoteSites()
						if w.Rank() == 0 {
							if when != "later" {
								if err := errors.Join(mpiwrap.Send(w, []int{41}, 1, 3),
									mpiwrap.Send(w, []int{42}, 1, 3)); err != nil {
									return err
								}
							}
							return s.save(w, nil)
						}
						r, got, err := post(w, source, tag)
						if err != nil {
							return err
						}
						if when == "tested in a set" {
							never, err := mpiwrap.Irecv(w, make([]int, 1), 0, 99)
							if err != nil {
								return err
							}
							for got() == 0 {
								if all, err := mpiwrap.TestAll(r, never); all || err != nil {
									return fmt.Errorf("TestAll: %v %w", all, err)
								}
							}
						}
						if err := s.save(w, nil); err != nil {
							return err
						}
						if when != "later" { // the running program sees no difference
							if _, err := r.Wait(); err != nil || got() != 41 {
								return fmt.Errorf("the running program got %d: %w", got(), err)
							}
						}
						return nil
					})
					onSim(t, 2, func(w *mpiwrap.Comm) error {
						if err := s.load(w); err != nil {
							return err
						}
						if w.Rank() == 0 {
							if when == "later" {
								return errors.Join(mpiwrap.Send(w, []int{41}, 1, 3), mpiwrap.Send(w, []int{42}, 1, 3))
							}
							return nil
						}
						owed := w.Endpoint().UnpostedReceives()
						if len(owed) == 0 || owed[0].Came != (when != "later") ||
							!strings.HasPrefix(owed[0].At, "unprotected_test.go:") {
							return fmt.Errorf("not named right: %+v", owed)
						}
						r, got, err := post(w, source, tag)
						if err != nil {
							return err
						}
						if _, err := r.Wait(); err != nil || got() != 41 {
							return fmt.Errorf("posted again, it got %d, want 41: %w", got(), err)
						}
						buf := []int{0}
						if _, err := mpiwrap.Recv(w, buf, 0, 3); err != nil || buf[0] != 42 {
							return fmt.Errorf("the next got %d, want 42: %w", buf[0], err)
						}
						for _, o := range w.Endpoint().UnpostedReceives() {
							if o.Tag != 99 {
								return fmt.Errorf("still owed: %+v", o)
							}
						}
						return nil
					})
				})
			}
		}
	}
}

// TestReceivePostedBeforeRestore: the checkpoint may have an earlier message for it, so the record is refused while it
// is posted.
func TestReceivePostedBeforeRestore(t *testing.T) {
	for name, post := range receiving {
		t.Run(name, func(t *testing.T) {
			s := newSaved(2)
			onSim(t, 2, func(w *mpiwrap.Comm) error { return s.save(w, nil) })
			onSim(t, 2, func(w *mpiwrap.Comm) error {
				if w.Rank() == 0 {
					return errors.Join(mpiwrap.Send(w, []int{42}, 1, 3), s.load(w))
				}
				r, got, err := post(w, 0, 3)
				if err != nil {
					return err
				}
				if err := s.load(w); !errors.Is(err, mpiwrap.ErrPending) {
					return fmt.Errorf("got %v, want ErrPending", err)
				}
				if _, err := r.Wait(); err != nil || got() != 42 {
					return fmt.Errorf("got %d, want 42: %w", got(), err)
				}
				return s.load(w)
			})
		})
	}
}

// TestUnprotectedReceiveThatIsForgotten: the restarted program waits for a request
// that it has not started, in every way there is, and the error names the receive that it lost.
func TestUnprotectedReceiveThatIsForgotten(t *testing.T) {
	s := newSaved(1)
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		r := mpiwrap.NewRequest(w, []int{0})
		return errors.Join(r.Irecv(0, 3), mpiwrap.Send(w, []int{41}, 0, 3), s.save(w, nil))
	})
	ways := map[string]func(r *mpiwrap.Request) error{
		"Wait":          func(r *mpiwrap.Request) error { _, err := r.Wait(); return err },
		"Test":          func(r *mpiwrap.Request) error { _, _, err := r.Test(); return err },
		"WaitAll":       func(r *mpiwrap.Request) error { return mpiwrap.WaitAll(nil, r) },
		"WaitAllStatus": func(r *mpiwrap.Request) error { _, err := mpiwrap.WaitAllStatus(nil, r); return err },
		"WaitAny":       func(r *mpiwrap.Request) error { _, _, err := mpiwrap.WaitAny(r); return err },
		"WaitSome":      func(r *mpiwrap.Request) error { _, _, err := mpiwrap.WaitSome(r); return err },
		"TestAll":       func(r *mpiwrap.Request) error { _, err := mpiwrap.TestAll(r); return err },
		"TestAny":       func(r *mpiwrap.Request) error { _, _, _, err := mpiwrap.TestAny(r); return err },
		"TestSome":      func(r *mpiwrap.Request) error { _, _, err := mpiwrap.TestSome(r); return err },
	}
	for name, wait := range ways {
		onSim(t, 1, func(w *mpiwrap.Comm) error {
			if err := s.load(w); err != nil {
				return err
			}
			err := wait(mpiwrap.NewRequest(w, []int{0}))
			if !errors.Is(err, mpiwrap.ErrRequest) || !strings.Contains(err.Error(), "unprotected_test.go:") {
				return fmt.Errorf("%s: got %v, want ErrRequest and the place", name, err)
			}
			return nil
		})
	}
}

// TestIdleRequests: waiting for what was never started or was waited for already.
func TestIdleRequests(t *testing.T) {
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		persistent, err := mpiwrap.RecvInit(w, []int{0}, 0, 1)
		if err != nil {
			return err
		}
		sender, err := mpiwrap.SendInit(w, []int{7}, 0, 1)
		if err != nil {
			return err
		}
		for _, r := range []*mpiwrap.Request{mpiwrap.NewRequest(w, []int{0}), persistent, sender} {
			for range 2 {
				if _, err := r.Wait(); !errors.Is(err, mpiwrap.ErrRequest) {
					return fmt.Errorf("Wait: got %v, want ErrRequest", err)
				}
				if _, ok, err := r.Test(); ok || !errors.Is(err, mpiwrap.ErrRequest) {
					return fmt.Errorf("Test: got %v %v, want ErrRequest", ok, err)
				}
				if r == persistent {
					if err := errors.Join(mpiwrap.Start(persistent, sender),
						mpiwrap.WaitAll(persistent, sender)); err != nil {
						return err
					}
				}
			}
			if err := mpiwrap.WaitAll(nil, r); err != nil {
				return fmt.Errorf("WaitAll skips inactive ones: %w", err)
			}
			if i, _, err := mpiwrap.WaitAny(nil, r); i != mpiwrap.Undefined || err != nil {
				return fmt.Errorf("WaitAny of none: %d %w", i, err)
			}
		}
		return nil
	})
}

// TestIdleBesideALostOne: after a restart WaitAll names the receive that the checkpoint had
// pending and the program has not posted again, and skips a prepared one that never was.
func TestIdleBesideALostOne(t *testing.T) {
	s := newSaved(1)
	receives := func(w *mpiwrap.Comm) (pending, idle *mpiwrap.Request, err error) {
		pending, err = mpiwrap.RecvInit(w, []int{0}, 0, 1)
		if err != nil {
			return nil, nil, err
		}
		idle, err = mpiwrap.RecvInit(w, []int{0}, 0, 2)
		return pending, idle, err
	}
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		pending, _, err := receives(w)
		return errors.Join(err, mpiwrap.Start(pending), s.save(w, nil))
	})
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		if err := s.load(w); err != nil {
			return err
		}
		pending, idle, err := receives(w)
		if err != nil {
			return err
		}
		if err := mpiwrap.WaitAll(idle); err != nil {
			return fmt.Errorf("the one that was idle: %w", err)
		}
		if err := mpiwrap.WaitAll(idle, pending); !errors.Is(err, mpiwrap.ErrRequest) {
			return fmt.Errorf("the one that was pending: got %v, want ErrRequest", err)
		}
		return nil
	})
}

// TestWhatCannotBeKept is refused at the checkpoint, by name.
func TestWhatCannotBeKept(t *testing.T) {
	cases := map[string]func(w *mpiwrap.Comm) ([]*mpiwrap.Request, error){
		"a collective": func(w *mpiwrap.Comm) ([]*mpiwrap.Request, error) {
			_, err := mpiwrap.Iallreduce(w, []int{0}, []int{1}, mpiwrap.Sum)
			return nil, err
		},
		"neighbours": func(w *mpiwrap.Comm) ([]*mpiwrap.Request, error) {
			n, err := w.NewNeighborhood([]int{0}, []int{0})
			if err != nil {
				return nil, err
			}
			_, err = mpiwrap.IneighborAlltoall(n, []int{0}, []int{1})
			return nil, err
		},
		"a barrier": func(w *mpiwrap.Comm) ([]*mpiwrap.Request, error) { _, err := w.Ibarrier(); return nil, err },
		"before a protected one": func(w *mpiwrap.Comm) ([]*mpiwrap.Request, error) {
			if _, err := mpiwrap.Irecv(w, []int{0}, mpiwrap.AnySource, 5); err != nil {
				return nil, err
			}
			r := mpiwrap.NewRequest(w, []int{0})
			return []*mpiwrap.Request{r}, r.Irecv(0, mpiwrap.AnyTag)
		},
		"a freed communicator": func(w *mpiwrap.Comm) ([]*mpiwrap.Request, error) {
			d, err := w.Dup()
			if err != nil {
				return nil, err
			}
			if _, err := mpiwrap.Irecv(d, []int{0}, 0, 5); err != nil {
				return nil, err
			}
			return nil, errors.Join(mpiwrap.Send(d, []int{0}, 0, 5), d.Free())
		},
		"set aside on a freed communicator": func(w *mpiwrap.Comm) ([]*mpiwrap.Request, error) {
			d, err := w.Dup()
			if err != nil {
				return nil, err
			}
			if err := mpiwrap.Send(d, []int{0}, 0, 5); err != nil {
				return nil, err
			}
			if _, err := d.Mprobe(0, 5); err != nil {
				return nil, err
			}
			return nil, d.Free()
		},
	}
	for name, start := range cases {
		t.Run(name, func(t *testing.T) {
			onSim(t, 1, func(w *mpiwrap.Comm) error {
				w.Endpoint().NoteSites()
				protected, err := start(w)
				if err := errors.Join(err, drain(w)); err != nil {
					return err
				}
				for _, r := range protected {
					if _, err := r.MarshalBinary(); err != nil {
						return err
					}
				}
				if _, err = w.Endpoint().SaveMailbox(); !errors.Is(err, mpiwrap.ErrPending) {
					return fmt.Errorf("got %v, want ErrPending", err)
				}
				if !strings.Contains(name, "aside") && !strings.Contains(err.Error(), "unprotected_test.go:") {
					return fmt.Errorf("no place in %q", err)
				}
				return nil
			})
		})
	}
}

// TestUnprotectedAmongOthers mixes kept messages with the mailbox, probes that set
// messages aside, protected receives and a message that was cut: each repeats what it
// did and gets what it had.
func TestUnprotectedAmongOthers(t *testing.T) {
	s := newSaved(1)
	post := func(w *mpiwrap.Comm, n, source, tag int) (*mpiwrap.Request, []int, error) {
		buf := make([]int, n)
		r, err := mpiwrap.Irecv(w, buf, source, tag)
		return r, buf, err
	}
	protect := func(w *mpiwrap.Comm) *mpiwrap.Request { return mpiwrap.NewRequest(w, make([]int, 30)) }
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		_, _, err1 := post(w, 30, 0, 1)                              // gets 10
		_, _, err2 := post(w, 1, mpiwrap.AnySource, 2)               // gets 20, cut
		p := protect(w)                                              // gets 11
		err3 := p.Irecv(0, 1)                                        //
		_, _, err4 := post(w, 30, mpiwrap.AnySource, mpiwrap.AnyTag) // gets 30
		err := errors.Join(err1, err2, err3, err4,                   //
			mpiwrap.Send(w, []int{30}, 0, 3),           //
			mpiwrap.Send(w, []int{20, 0, 0}, 0, 2),     //
			mpiwrap.Send(w, []int{10}, 0, 1),           //
			mpiwrap.Send(w, []int{11}, 0, 1), drain(w), //
			mpiwrap.Send(w, []int{31}, 0, 3), mpiwrap.Send(w, []int{12}, 0, 1), mpiwrap.Send(w, []int{13}, 0, 1))
		if err != nil {
			return err
		}
		if m, err := w.Mprobe(0, 1); err != nil || m == nil { // sets 12 aside
			return err
		}
		return s.save(w, p)
	})
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		p := protect(w)
		if err := errors.Join(p.UnmarshalBinary(s.request[0]), s.load(w)); err != nil {
			return err
		}
		r1, b1, err1 := post(w, 30, 0, 1)
		r2, _, err2 := post(w, 1, mpiwrap.AnySource, 2)
		r4, b4, err4 := post(w, 30, mpiwrap.AnySource, mpiwrap.AnyTag)
		m, err5 := w.Mprobe(0, 1)
		if err := errors.Join(err1, err2, err4, err5, mpiwrap.WaitAll(r1, r4)); err != nil {
			return err
		}
		if _, err := r2.Wait(); !errors.Is(err, mpiwrap.ErrTruncate) {
			return fmt.Errorf("the message that was cut: got %v, want ErrTruncate", err)
		}
		if st, err := p.Wait(); err != nil || st.Tag != 1 {
			return fmt.Errorf("the protected one: %+v %w", st, err)
		}
		aside, a, b := []int{0}, []int{0}, []int{0}
		_, err := mpiwrap.Mrecv(m, aside)
		_, err1 = mpiwrap.Recv(w, a, 0, mpiwrap.AnyTag)
		_, err2 = mpiwrap.Recv(w, b, 0, mpiwrap.AnyTag)
		if err := errors.Join(err, err1, err2); err != nil {
			return err
		}
		if got := fmt.Sprint(b1[0], b4[0], aside[0], a[0], b[0]); got != "10 30 12 31 13" {
			return fmt.Errorf("got %s, want 10 30 12 31 13", got)
		}
		return nil
	})
}

// TestCutMessageStaysCut: a message that was too long for its receive is reported as
// truncated even after another checkpoint at which a probe has set it aside.
func TestCutMessageStaysCut(t *testing.T) {
	s := newSaved(1)
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		_, err := mpiwrap.Irecv(w, []int{0}, 0, 2)
		return errors.Join(err, mpiwrap.Send(w, []int{1, 2, 3}, 0, 2), s.save(w, nil))
	})
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		if err := s.load(w); err != nil {
			return err
		}
		_, err := w.Mprobe(0, 2)
		return errors.Join(err, s.save(w, nil))
	})
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		if err := s.load(w); err != nil {
			return err
		}
		if _, err := mpiwrap.Recv(w, make([]int, 3), 0, 2); !errors.Is(err, mpiwrap.ErrTruncate) {
			return fmt.Errorf("got %v, want ErrTruncate", err)
		}
		return nil
	})
}
