package gpud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Load is one device of one server with its programs, as a Policy sees it.
type Load struct {
	Server  string // the address that it was asked at
	Device  DeviceStatus
	Takes   bool  // new clients
	Quota   int64 // bytes of device memory that one program may use; 0: no limit
	Clients []ClientStatus
}

// Order is a program to move, and why.
type Order struct {
	From   string // address of its server
	Client uint64 // number of the program there
	To     string // address of the server that gets it
	Device int    // index of the device there
	Why    string // for people
}

// Window is the policy of VOCL (Xiao et al., "Transparent Accelerator Migration in a Virtualized GPU Environment",
// CCGrid 2012). When the numbers of unfinished commands of two devices differ by more than half the window N, a program
// moves from the fuller to the emptier one.
//
// Three rules against ping-pong are added. The difference must last for Confirm decisions. A move must leave the new
// device less loaded than the old one was. A program that has moved stays for 10 s.
type Window struct {
	// N is the window: the bound of unfinished commands of a queue. 0 is
	// gpustate.DefaultWindow.
	N int
	// Confirm is the number of decisions in a row that must agree. 0 means 2.
	Confirm int

	agreed map[string]int       // by pair of devices
	pinned map[string]time.Time // by program: until when it stays
}

// stays is how long a program is not moved after it has moved.
const stays = 10 * time.Second

func (l *Load) key() string { return fmt.Sprintf("%s device %d", l.Server, l.Device.Index) }

func (c *ClientStatus) key() string { return fmt.Sprintf("%s %d %s", c.Host, c.PID, c.Label) }

// Decide orders at most one move: its effect is seen before the next one. It returns nil if nothing is to be moved. It
// asks no server, keeps no part of loads, and remembers its earlier decisions. now is the time of loads.
func (w *Window) Decide(now time.Time, loads []Load) []Order {
	if w.agreed == nil {
		w.agreed, w.pinned = map[string]int{}, map[string]time.Time{}
	}
	order, pair := w.propose(now, loads)
	count := w.agreed[pair] + 1
	clear(w.agreed)
	if order == nil {
		return nil
	}
	if count < cmp.Or(w.Confirm, 2) {
		w.agreed[pair] = count
		return nil
	}
	for k, until := range w.pinned {
		if now.After(until) {
			delete(w.pinned, k)
		}
	}
	w.pinned[order.key] = now.Add(stays)
	return []Order{order.Order}
}

type proposal struct {
	Order
	key string // of the program
}

// propose finds the move that evens the load most.
func (w *Window) propose(now time.Time, loads []Load) (*proposal, string) {
	half := int64(cmp.Or(w.N, gpustate.DefaultWindow)) / 2
	sorted := slices.Clone(loads)
	slices.SortStableFunc(sorted, func(a, b Load) int {
		return cmp.Compare(b.Device.Unfinished, a.Device.Unfinished)
	})
	for i := range sorted {
		from := &sorted[i]
		for j := len(sorted) - 1; j > i; j-- {
			to := &sorted[j]
			diff := from.Device.Unfinished - to.Device.Unfinished
			if diff <= half {
				break // the others are fuller still
			}
			if !to.Takes {
				continue
			}
			if c := w.candidate(now, from, to, diff); c != nil {
				return &proposal{key: c.key(), Order: Order{From: from.Server, Client: c.ID, To: to.Server,
						Device: to.Device.Index,
						Why: fmt.Sprintf("%d commands wait on %s, %d on %s", from.Device.Unfinished, from.key(),
							to.Device.Unfinished, to.key())}},
					from.key() + " > " + to.key() + " > " + c.key()
			}
		}
	}
	return nil, ""
}

// candidate returns the program whose move evens two devices best: one that brings
// less to the other device than the difference is, and whose memory fits there.
func (w *Window) candidate(now time.Time, from, to *Load, diff int64) *ClientStatus {
	var best *ClientStatus
	var rest int64
	for i := range from.Clients {
		c := &from.Clients[i]
		room := to.Device.TotalBytes - to.Device.UsedBytes
		if to.Quota > 0 {
			room = min(room, to.Quota)
		}
		if c.Unfinished == 0 || c.Unfinished >= diff || c.UsedBytes > room || now.Before(w.pinned[c.key()]) {
			continue
		}
		after := max(diff-2*c.Unfinished, 2*c.Unfinished-diff) // how far apart they will be
		if best == nil || after < rest {
			best, rest = c, after
		}
	}
	return best
}

// Balancer asks servers for their load and moves programs as a policy decides. All fields are required.
type Balancer struct {
	Servers []string // addresses: "unix:PATH" or "HOST:PORT"
	KeyFile string   // with their key for moving programs, see MoveKeyFile
	Policy  *Window  // decides, and remembers; the same for all calls of Once
}

// The load is taken several times for one decision, and the mean counts: windows fill and drain quickly.
const (
	asks  = 5
	pause = 20 * time.Millisecond // between two of them
)

// How long a server that was reached may take to report its load, and a program to
// move: either may be stopped, and others wait to be balanced.
const (
	askTime  = wire.HandshakeTime
	moveTime = 10 * time.Minute
)

// Once takes the load, decides and moves. It returns the orders, and for each the error of its move, nil if it has
// moved. The last result joins the errors of servers that cannot be asked. The orders are nil only when no server could
// be asked.
//
// It asks each server five times within some 100 ms and decides by the mean. A server has five seconds for an answer, a
// program ten minutes to move.
func (b *Balancer) Once(ctx context.Context) ([]Order, []error, error) {
	loads, err := b.loads(ctx)
	if loads == nil {
		return nil, nil, err
	}
	orders := append([]Order{}, b.Policy.Decide(time.Now(), loads)...)
	results := make([]error, len(orders))
	for i, o := range orders {
		results[i] = b.carryOut(ctx, o)
	}
	return orders, results, err
}

func (b *Balancer) carryOut(ctx context.Context, o Order) error {
	a, err := DialAdmin(ctx, o.From, b.KeyFile)
	if err != nil {
		return err
	}
	defer a.Close()
	ctx, cancel := context.WithTimeout(ctx, moveTime)
	defer cancel()
	_, err = a.Move(ctx, o.Client, fmt.Sprintf("remote=%s,#%d", o.To, o.Device))
	return err
}

// loads takes the mean of several looks at all servers.
func (b *Balancer) loads(ctx context.Context) ([]Load, error) {
	var errs []error
	var admins []*Admin
	for _, addr := range b.Servers {
		a, err := DialAdmin(ctx, addr, b.KeyFile)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		defer a.Close()
		admins = append(admins, a)
	}
	sums := map[string]int64{} // by device, and by device and client
	var loads []Load
	for n := range asks {
		if n > 0 {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(pause):
			}
		}
		loads = nil
		for _, a := range admins {
			st, err := a.load(ctx)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			loads = append(loads, st.loads(a.addr)...)
		}
		for i := range loads {
			l := &loads[i]
			sums[l.key()] += l.Device.Unfinished
			for _, c := range l.Clients {
				sums[fmt.Sprintf("%s client %d", l.key(), c.ID)] += c.Unfinished
			}
		}
	}
	for i := range loads {
		l := &loads[i]
		l.Device.Unfinished = (sums[l.key()] + asks/2) / asks
		for k := range l.Clients {
			c := &l.Clients[k]
			c.Unfinished = (sums[fmt.Sprintf("%s client %d", l.key(), c.ID)] + asks/2) / asks
		}
	}
	return loads, errors.Join(errs...)
}

// load is Status that does not wait for long.
func (a *Admin) load(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return a.Status(ctx)
}

// loads divides a server's status by device.
func (st *Status) loads(addr string) []Load {
	var list []Load
	for _, d := range st.Devices {
		l := Load{Server: addr, Device: d, Takes: !st.Draining, Quota: st.Quota}
		for _, c := range st.Clients {
			if c.Device == d.Index {
				l.Clients = append(l.Clients, c)
			}
		}
		list = append(list, l)
	}
	return list
}
