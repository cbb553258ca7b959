package gpud

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Status is the state of a server.
type Status struct {
	Server   string         `json:"server"`      // name of the server
	Addrs    []string       `json:"addresses"`   // addresses at which it listens
	Draining bool           `json:"draining"`    // it takes no new programs
	Quota    int64          `json:"quota_bytes"` // bytes of device memory that one program may use; 0: no limit
	Devices  []DeviceStatus `json:"devices"`     // the server's devices
	Clients  []ClientStatus `json:"clients"`     // programs that are connected
	Counts   Counts         `json:"counts"`      // totals since the server started
}

// DeviceStatus is one device of a server.
type DeviceStatus struct {
	Index      int    `json:"index"`       // index of the device at the server
	Name       string `json:"name"`        // name that the driver reports
	Kind       string `json:"kind"`        // kind of device: gpu, cpu or another
	TotalBytes int64  `json:"total_bytes"` // bytes of its memory
	UsedBytes  int64  `json:"used_bytes"`  // bytes that programs of this server use
	Unfinished int64  `json:"unfinished"`  // commands that have not ended
	Clients    int64  `json:"clients"`     // programs that use it
}

// ClientStatus is one client of a server.
type ClientStatus struct {
	ID         uint64  `json:"id"`         // number of the program at this server
	Device     int     `json:"device"`     // index of its device
	Program    string  `json:"program"`    // name of the program
	Host       string  `json:"host"`       // host that it runs on
	PID        int     `json:"pid"`        // process ID on that host
	Label      string  `json:"label"`      // label that it was started with
	UsedBytes  int64   `json:"used_bytes"` // bytes of device memory that it uses
	Unfinished int64   `json:"unfinished"` // commands that have not ended
	Commands   int64   `json:"commands"`   // commands since it connected
	Seconds    float64 `json:"seconds"`    // seconds since it connected
}

// Counts has the totals since the server started.
type Counts struct {
	Admitted          int64 `json:"admitted"`           // programs that were accepted
	Refused           int64 `json:"refused"`            // programs that were refused: the server was full or draining
	HandshakeFailures int64 `json:"handshake_failures"` // connections without the key, or of another version
	Commands          int64 `json:"commands"`           // commands that were executed
	WrittenBytes      int64 `json:"written_bytes"`      // bytes that were copied to devices
	ReadBytes         int64 `json:"read_bytes"`         // bytes that were copied from devices
	Moved             int64 `json:"moved"`              // programs that moved to other devices
}

// status returns the state of the server now.
func (s *Server) status() Status {
	c := &s.counts
	st := Status{Server: s.service.Name, Addrs: s.listening, Quota: s.service.Quota,
		Devices: []DeviceStatus{}, Clients: []ClientStatus{},
		Counts: Counts{Admitted: c.admitted.Load(), Refused: c.refused.Load(),
			HandshakeFailures: c.handshakeFailures.Load(), Moved: c.moved.Load()}}
	for i, d := range s.service.Devices {
		st.Devices = append(st.Devices, DeviceStatus{Index: i, Name: d.Info.Name, Kind: d.Info.Kind,
			TotalBytes: d.Info.GlobalBytes})
	}
	s.mu.Lock() // usages are there as long as clients are
	defer s.mu.Unlock()
	st.Draining = s.draining
	t := &st.Counts
	t.Commands, t.WrittenBytes, t.ReadBytes = c.commands.Load(), c.written.Load(), c.read.Load()
	for _, cl := range s.clients {
		t.Commands += cl.usage.Commands.Load()
		t.WrittenBytes += cl.usage.Written.Load()
		t.ReadBytes += cl.usage.Read.Load()
	}
	for _, cl := range s.listLocked() {
		k := ClientStatus{ID: cl.ID, Device: cl.who.Index, Program: cl.who.Program,
			Host: cl.who.Host, PID: cl.who.PID, Label: cl.who.Label, UsedBytes: cl.usage.Used.Load(),
			Unfinished: cl.usage.Unfinished.Load(), Commands: cl.usage.Commands.Load(),
			Seconds: time.Since(cl.since).Seconds()}
		d := &st.Devices[cl.who.Index]
		d.UsedBytes += k.UsedBytes
		d.Unfinished += k.Unfinished
		d.Clients++
		if !cl.departed() {
			st.Clients = append(st.Clients, k)
		}
	}
	return st
}

// metrics returns the state in the text format of Prometheus.
func (st *Status) metrics() (b []byte) {
	head := func(name, kind, help string) {
		b = fmt.Appendf(b, "# HELP holdfast_gpud_%s %s\n# TYPE holdfast_gpud_%[1]s %[3]s\n", name, help, kind)
	}
	total := func(name, help string, v int64) {
		head(name, "counter", help)
		b = fmt.Appendf(b, "holdfast_gpud_%s %d\n", name, v)
	}
	device := func(name, help string, of func(d *DeviceStatus) int64) {
		head(name, "gauge", help)
		for i := range st.Devices {
			d := &st.Devices[i]
			b = fmt.Appendf(b, "holdfast_gpud_%s{device=\"%d\",name=%s} %d\n", name, d.Index, strconv.Quote(d.Name),
				of(d))
		}
	}
	device("clients", "Programs that use the device.", func(d *DeviceStatus) int64 { return d.Clients })
	device("unfinished_commands", "Commands waiting or running.", func(d *DeviceStatus) int64 { return d.Unfinished })
	device("used_bytes", "Device memory used by all programs.", func(d *DeviceStatus) int64 { return d.UsedBytes })
	device("total_bytes", "Total device memory.", func(d *DeviceStatus) int64 { return d.TotalBytes })
	c := st.Counts
	total("admitted_total", "Programs admitted.", c.Admitted)
	total("refused_total", "Programs refused because the server was full or draining.", c.Refused)
	total("handshake_failures_total", "Connections refused for a wrong key or protocol version.", c.HandshakeFailures)
	total("commands_total", "Commands completed.", c.Commands)
	total("written_bytes_total", "Bytes moved to devices.", c.WrittenBytes)
	total("read_bytes_total", "Bytes moved from devices.", c.ReadBytes)
	total("moved_total", "Programs moved to other devices.", c.Moved)
	return b
}

// Metrics returns a handler that answers each request with the counts of Status, in the text format of Prometheus.
// Serve does not serve it: the caller gives it to an http.Server.
func (s *Server) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		st := s.status()
		_, _ = w.Write(st.metrics()) // a reader that is gone misses nothing
	})
}
