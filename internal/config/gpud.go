package config

import (
	"slices"
	"time"
)

// A Server has the settings of holdfast gpud and of the commands that ask it.
type Server struct {
	Key     string        // file; empty: the default one
	Quota   int64         // bytes; 0: no limit
	Timeout time.Duration // 0: those of package gpud
}

// Apply sets in s what values say of it and is allowed.
func (s *Server) Apply(values []Value) {
	for _, v := range values {
		i := slices.IndexFunc(server, func(r Row[Server]) bool { return r.Key == v.Key })
		if i >= 0 && v.Value != "" && v.Error == "" {
			_ = server[i].Set(s, v.Value) // it was tried when it was set
		}
	}
}

var server = []Row[Server]{
	Key("gpud.key", "~/.config/holdfast/gpud.key", "key of holdfast gpud and its clients; gpud-move.key beside it is "+
		"the key that holdfast migrate, balance and gpud --evacuate prove",
		Text("a file", func(s *Server) *string { return &s.Key })),
	Key("gpud.quota", "no limit", "device memory of one program of holdfast gpud",
		Bytes(func(s *Server) *int64 { return &s.Quota })),
	Key("gpud.timeout", "15s for its node, 30s to read, never if stopped", "time after which holdfast gpud drops a "+
		"program whose node does not answer, that does not read what it is sent, or that is stopped",
		Positive(func(s *Server) *time.Duration { return &s.Timeout })),
}

// Gpud has the rows of devices and of holdfast gpud. What a job does with the selection of a device, and then with the
// key file, is up to device and key.
func Gpud[T any](device, key func(o *T, text string) error) []Row[T] {
	rows := []Row[T]{Key("device", "the best there is", "device of the program, on this machine or of a holdfast gpud",
		Checked("a selection such as cuda:0, pocl, or remote=node7:7478,cuda:0", device))}
	for _, r := range server {
		set := func(_ *T, text string) error { return r.Set(new(Server), text) }
		if r.Key == "gpud.key" {
			set = key
		}
		rows = append(rows, Key(r.Key, r.Default, r.Help, Checked(r.Allowed, set)))
	}
	return In("devices, and the server that lends them, holdfast gpud", rows...)
}
