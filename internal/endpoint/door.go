package endpoint

// Hooks is what package mpiwrap, which stands above this one, hands in when it starts.
// A communicator there is a *mpiwrap.Comm.
type Hooks struct {
	Of      func(comm any) Endpoint
	Private func(comm any) any
	Restart func(world any, observer func(op string)) (again any, end func() error, err error)
}

var hooks Hooks

// Register is for package mpiwrap.
func Register(h Hooks) { hooks = h }

// Of returns the endpoint of a rank, which is the same for all its communicators.
func Of[Comm any](c *Comm) Endpoint { return hooks.Of(c) }

// Private returns a communicator of all ranks for the checkpointer's own messages: they
// are neither counted nor drained.
func Private[Comm any](c *Comm) *Comm { return hooks.Private(c).(*Comm) }

// Restart makes another world on the ranks of w, like that of a process which has just
// called Init: nothing has been sent, no communicator made, no message waits in it. A
// test restarts its program in it without a new process. The observer, if there is one,
// hears of every call before it is made. Collective over w, which must not be used before
// end has returned.
//
// end is collective as well, and does what the end of a process would: receives that are
// pending are withdrawn, messages dropped, and communicators, windows and prepared
// requests freed.
func Restart[Comm any](w *Comm, observer func(op string)) (world *Comm, end func() error, err error) {
	again, end, err := hooks.Restart(w, observer)
	if err != nil {
		return nil, nil, err
	}
	return again.(*Comm), end, nil
}
