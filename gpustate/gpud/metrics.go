package gpud

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// writeMetrics writes the state in the text format of Prometheus.
func (st *Status) writeMetrics(w io.Writer) error {
	var err error
	put := func(name, kind, help string, values func(add func(labels string, v int64))) {
		if err != nil {
			return
		}
		_, err = fmt.Fprintf(w, "# HELP holdfast_gpud_%s %s\n# TYPE holdfast_gpud_%[1]s %[3]s\n", name, help, kind)
		values(func(labels string, v int64) {
			if err == nil {
				_, err = fmt.Fprintf(w, "holdfast_gpud_%s%s %d\n", name, labels, v)
			}
		})
	}
	total := func(name, help string, v int64) {
		put(name, "counter", help, func(add func(string, int64)) { add("", v) })
	}
	device := func(name, help string, of func(d *DeviceStatus) int64) {
		put(name, "gauge", help, func(add func(string, int64)) {
			for i := range st.Devices {
				d := &st.Devices[i]
				add(fmt.Sprintf("{device=\"%d\",name=%s}", d.Index, strconv.Quote(d.Name)), of(d))
			}
		})
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
	return err
}

// Metrics answers with writeMetrics.
func (s *Server) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		st := s.status()
		_ = st.writeMetrics(w) // a reader that is gone misses nothing
	})
}
