package config

// removed has the settings of earlier releases, each with what stands in its place.
var removed = map[string]string{
	"control.heartbeat": "control.peer_timeout sets the pace of heartbeats",
	"full_every":        "every 32nd epoch is written whole",
	"local_every":       "every epoch goes to local; global_every thins the copies",
	"metrics.dir":       "use metrics, with the directory",
	"metrics.listen":    "use metrics, with the address",
	"pack_size":         "a node's files at global grow to 8 GiB",
	"parity_every":      "use redundancy_every",
	"partner_every":     "use redundancy_every",
	"stripes":           "run lfs setstripe on the directory; holdfast doctor has the command",
}

// gone describes a removed setting.
func gone(instead string) string { return "this setting is gone: " + instead }

// goneVariable describes the variable of a removed setting; it is empty for any other.
func goneVariable(name string) string {
	for key, instead := range removed {
		if variable(key) == name {
			return gone(instead)
		}
	}
	return ""
}
