package config

// removed has the settings of earlier releases, each with its replacement.
var removed = map[string]string{
	"control.heartbeat": "control.peer_timeout sets the pace of heartbeats",
	"full_every":        "every 32nd epoch is written whole",
	"gpud.device":       "use the flag --device of holdfast gpud",
	"gpud.frozen":       "use the flag --timeout of holdfast gpud",
	"gpud.grace":        "use the flag --grace of holdfast gpud",
	"gpud.listen":       "use the flag --listen of holdfast gpud",
	"gpud.max_clients":  "use the flag --max-clients of holdfast gpud",
	"gpud.metrics":      "use the flag --metrics of holdfast gpud",
	"gpud.move_key":     "the key for moving programs is the file gpud-move.key beside gpud.key",
	"gpud.patience":     "use the flag --timeout of holdfast gpud",
	"gpud.peer":         "use the flag --peer of holdfast gpud",
	"gpud.quota":        "use the flag --quota of holdfast gpud",
	"gpud.silence":      "use the flag --timeout of holdfast gpud",
	"gpud.timeout":      "use the flag --timeout of holdfast gpud",
	"gpud.user":         "use the flag --user of holdfast gpud",
	"gpud.worker_dir":   "use the flag --worker-dir of holdfast gpud",
	"local_every":       "every epoch goes to local; global_every thins the copies",
	"metrics.dir":       "use metrics, with the directory",
	"metrics.listen":    "use metrics, with the address",
	"pack_size":         "a node's files at global grow to 8 GiB",
	"parity_every":      "use redundancy_every",
	"partner_every":     "use redundancy_every",
	"stripes":           "run lfs setstripe on the directory; holdfast doctor has the command",
}

// Removed returns the replacement of a key that is gone; it is empty for any other.
func Removed(key string) string {
	if instead, ok := removed[key]; ok {
		return "this setting is gone: " + instead
	}
	return ""
}

func removedVariable(name string) string {
	for key := range removed {
		if variable(key) == name {
			return Removed(key)
		}
	}
	return ""
}
