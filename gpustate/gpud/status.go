package gpud

import "time"

// Status is what a server publishes.
type Status struct {
	Server   string         `json:"server"`
	Addrs    []string       `json:"addresses"` // by which other servers reach it
	Draining bool           `json:"draining"`
	Quota    int64          `json:"quota_bytes"` // of one client, 0: no bound
	Devices  []DeviceStatus `json:"devices"`
	Clients  []ClientStatus `json:"clients"`
	Counts   Counts         `json:"counts"`
}

// DeviceStatus is one device of a server.
type DeviceStatus struct {
	Index      int    `json:"index"`
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	TotalBytes int64  `json:"total_bytes"`
	UsedBytes  int64  `json:"used_bytes"` // by clients of the server
	Unfinished int64  `json:"unfinished"` // commands
	Clients    int64  `json:"clients"`
}

// ClientStatus is one client of a server.
type ClientStatus struct {
	ID         uint64  `json:"id"`
	Device     int     `json:"device"`
	Program    string  `json:"program"`
	Host       string  `json:"host"`
	PID        int     `json:"pid"`
	Label      string  `json:"label"`
	UsedBytes  int64   `json:"used_bytes"`
	Unfinished int64   `json:"unfinished"`
	Commands   int64   `json:"commands"`
	Seconds    float64 `json:"seconds"` // since it came
}

// Counts are totals since the server started.
type Counts struct {
	Admitted          int64 `json:"admitted"`
	Refused           int64 `json:"refused"`            // while full or draining
	HandshakeFailures int64 `json:"handshake_failures"` // connections without the key, or of another version
	Commands          int64 `json:"commands"`
	WrittenBytes      int64 `json:"written_bytes"`
	ReadBytes         int64 `json:"read_bytes"`
	Moved             int64 `json:"moved"` // clients, to other devices
}

// status is the state of the server now.
func (s *Server) status() Status {
	c := &s.counts
	st := Status{Server: s.service.Name, Addrs: s.service.Addrs, Quota: s.service.Quota,
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
			Seconds: time.Since(cl.begun).Seconds()}
		d := &st.Devices[cl.who.Index]
		d.UsedBytes += k.UsedBytes
		d.Unfinished += k.Unfinished
		d.Clients++
		if !cl.gone() {
			st.Clients = append(st.Clients, k)
		}
	}
	return st
}
