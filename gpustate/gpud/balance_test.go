package gpud

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// cluster is programs on devices of a simulated cluster: each keeps the same
// number of commands waiting wherever it is.
type cluster struct {
	programs []ClientStatus // Device is the device
	devices  int
	bytes    int64 // memory of each device
	closed   map[int]bool
}

func (c *cluster) loads() []Load {
	var list []Load
	for d := range c.devices {
		l := Load{Server: fmt.Sprint("s", d), Device: DeviceStatus{TotalBytes: c.bytes}, Takes: !c.closed[d]}
		for _, p := range c.programs {
			if p.Device == d {
				l.Clients = append(l.Clients, p)
				l.Device.Unfinished += p.Unfinished
				l.Device.UsedBytes += p.UsedBytes
			}
		}
		list = append(list, l)
	}
	return list
}

// run lets the policy decide so often, a second apart, and gives the moves.
func (c *cluster) run(p *Window, looks int) (moves []Order) {
	now := time.Unix(0, 0)
	for range looks {
		for _, o := range p.Decide(now, c.loads()) {
			moves = append(moves, o)
			for i := range c.programs {
				if c.programs[i].ID == o.Client {
					fmt.Sscanf(o.To, "s%d", &c.programs[i].Device)
				}
			}
		}
		now = now.Add(time.Second)
	}
	return moves
}

func programs(unfinished ...int64) (list []ClientStatus) {
	for i, n := range unfinished {
		list = append(list, ClientStatus{ID: uint64(i + 1), PID: i + 1, Host: "h", Unfinished: n, UsedBytes: 10})
	}
	return list
}

func TestWindow(t *testing.T) {
	const n = 20
	for _, c := range []struct {
		name    string
		cluster cluster
		policy  Window
		moves   int
		where   string // of the programs at the end
	}{
		{"two on one device", cluster{programs: programs(20, 20), devices: 2}, Window{}, 1, "[1 0]"},
		{"one alone stays", cluster{programs: programs(20), devices: 2}, Window{}, 0, "[0]"},
		{"half the window is not enough", cluster{programs: programs(5, 5), devices: 2}, Window{}, 0, "[0 0]"},
		{"one more is", cluster{programs: programs(6, 5), devices: 2}, Window{}, 1, "[1 0]"},
		{"idle ones stay", cluster{programs: programs(20, 0, 0), devices: 2}, Window{}, 0, "[0 0 0]"},
		{"four on four devices", cluster{programs: programs(20, 20, 20, 20), devices: 4}, Window{}, 3, "[3 2 1 0]"},
		{"the one that evens best", cluster{programs: programs(18, 9, 8), devices: 2}, Window{}, 1, "[1 0 0]"},
		{"no room there", cluster{programs: programs(20, 20), devices: 2, bytes: 5}, Window{}, 0, "[0 0]"},
		{"a server that leaves", cluster{programs: programs(20, 20), devices: 2, closed: map[int]bool{1: true}},
			Window{}, 0, "[0 0]"},
		{"a wide window", cluster{programs: programs(20, 20), devices: 2}, Window{N: 100}, 0, "[0 0]"},
		{"not confirmed", cluster{programs: programs(20, 20), devices: 2}, Window{Confirm: 100}, 0, "[0 0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.cluster.bytes == 0 {
				c.cluster.bytes = 1000
			}
			if c.policy.N == 0 {
				c.policy.N = n
			}
			moves := c.cluster.run(&c.policy, 40)
			var where []int
			for _, p := range c.cluster.programs {
				where = append(where, p.Device)
			}
			if len(moves) != c.moves || fmt.Sprint(where) != c.where {
				t.Errorf("got %d moves to %v, want %d to %s", len(moves), where, c.moves, c.where)
			}
		})
	}
}

// alternating is a load that swings: what is full at one look is empty at the
// next.
type alternating struct{ look int }

func (a *alternating) loads() []Load {
	a.look++
	c := cluster{programs: programs(20, 20), devices: 2, bytes: 1000}
	c.programs[0].Device, c.programs[1].Device = a.look%2, a.look%2
	return c.loads()
}

// TestPingPong: a load that swings moves nothing, and a program that has moved
// stays for some rounds whatever the load.
func TestPingPong(t *testing.T) {
	p, a := &Window{N: 20}, &alternating{}
	now := time.Unix(0, 0)
	for range 50 {
		if moves := p.Decide(now, a.loads()); moves != nil {
			t.Fatalf("moved %v", moves)
		}
		now = now.Add(time.Second)
	}
	c := cluster{programs: programs(20, 20), devices: 2, bytes: 1000}
	p = &Window{N: 20}
	if n := len(c.run(p, 3)); n != 1 {
		t.Fatalf("%d moves, want 1", n)
	}
	c.programs[1].Device = 1 // both are on the other device now
	moves := c.run(p, 8)     // seconds, in which the first one stays
	if len(moves) != 1 || moves[0].Client != 2 {
		t.Errorf("got %v, want the program that has not moved before", moves)
	}
}

// TestBalancer: of two programs that keep one device busy one goes to another
// server, by the load that the servers publish.
func TestBalancer(t *testing.T) {
	a := serve(t, Options{})
	b := serve(t, Options{KeyFile: a.sel.KeyFile})
	stop := make(chan struct{})
	ended := make(chan error, 2)
	var list []*counter
	for range 2 {
		c := open(t, a.sel)
		list = append(list, c)
		go func() {
			for {
				select {
				case <-stop:
					ended <- nil
					return
				default:
				}
				if err := c.step(); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	// a load of this size cannot be relied on: the smallest window moves at any
	bal := &Balancer{Servers: []string{a.addr, b.addr}, KeyFile: MoveKeyFile(a.sel.KeyFile),
		Policy: &Window{N: 2, Confirm: 1}}
	moved := false
	for deadline := time.Now().Add(2 * time.Minute); !moved && time.Now().Before(deadline); {
		orders, results, err := bal.Once(t.Context())
		ok(t, err)
		for i := range orders {
			ok(t, results[i])
			moved = true
		}
	}
	close(stop)
	for range list {
		ok(t, <-ended)
	}
	if !moved || len(b.status().Clients) != 1 {
		t.Errorf("moved %v, %d programs on the second server", moved, len(b.status().Clients))
	}
	for _, c := range list {
		ok(t, c.check())
		ok(t, c.d.Close())
	}
	bal.Servers = []string{"unix:/nowhere/s"}
	if _, _, err := bal.Once(t.Context()); err == nil {
		t.Error("no server and no error")
	}
	if n := len(a.status().Devices); n != 2 || a.status().Counts.Moved != 1 {
		t.Errorf("status is %+v", a.status())
	}
}

// TestBalancerSilent: a server that is reached and then says nothing keeps no
// other from being looked at.
func TestBalancerSilent(t *testing.T) {
	t.Parallel()
	a := serve(t, Options{})
	key := must(wire.ReadKey(MoveKeyFile(a.sel.KeyFile)))(t)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = wire.Admit(c, wire.Keys{Move: key}, func(wire.Purpose) bool { return false })
		}
	}()
	bal := &Balancer{Servers: []string{l.Addr().String(), a.addr}, KeyFile: MoveKeyFile(a.sel.KeyFile),
		Policy: &Window{}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	orders, _, err := bal.Once(ctx)
	if orders == nil || err == nil || ctx.Err() != nil {
		t.Errorf("got %v, %v: want it to look at one server and say what is wrong with the other", orders, err)
	}
}
