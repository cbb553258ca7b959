package gpud

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/worker"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Options name the devices to serve, the address, and the limits of clients. Listen, KeyFile and Worker are required.
// New reads the key files, once.
type Options struct {
	// Listen are the addresses: "unix:PATH" or "HOST:PORT". Nothing else listens.
	Listen []string
	// KeyFile holds the key that clients prove. MoveKeyFile of it holds another one, which DialAdmin proves: it moves
	// programs. The server makes directories and files that are missing.
	KeyFile string
	// Worker is the command line of a program that calls RunWorker. The server
	// starts it for each client, so that no client's kernel can harm another
	// client or the server. `holdfast gpud` starts itself.
	Worker []string
	// Offer chooses the devices. nil: all.
	Offer func(driver.Info) bool
	// Quota bounds the device memory of one client in bytes; 0 is no bound.
	Quota int64
	// MaxClients bounds the clients at a time; 0 is 256.
	MaxClients int
	// Timeout is the time after which a client is dropped: its host acknowledges nothing, it does not read its
	// messages, or it sends nothing although its host is there, since its program is stopped. Waiting for a long
	// command is no silence. 0 is 15 s for a host, 30 s for a client that does not read, and no end for one that is
	// stopped, perhaps by a debugger.
	Timeout time.Duration
	// Unconfined lets workers reach all that this user can: files, processes, sockets. Without it they reach devices,
	// libraries and caches of compilers, as far as the kernel knows Landlock; they have no privileges, and only the
	// variables that drivers read.
	Unconfined bool
	// WorkerDirs are directories that workers may use beyond that.
	WorkerDirs []string
	// User is the user that workers run as. It takes a server that root has started.
	// Empty: the server's.
	User string
	// TrustSources gives programs to compilers with whatever options, and whatever
	// files of this machine they include. Without it a client's programs are built with
	// known options and headers of the compiler alone.
	TrustSources bool
	// Peers are the servers that programs move to when this one is evacuated.
	Peers []string
	// Logger gets the events of the server; nil: no log.
	Logger *slog.Logger

	patience, silence, frozen time.Duration // of clients that do not read, of their hosts, of those that are stopped

	grace time.Duration // that a worker has to end after its client has gone or the server is shutting down
}

func (o *Options) validate() error {
	if len(o.Listen) == 0 {
		return errors.New("gpud: Options.Listen is empty: want unix:PATH or HOST:PORT")
	}
	if o.KeyFile == "" {
		return errors.New("gpud: Options.KeyFile is empty")
	}
	if len(o.Worker) == 0 {
		return errors.New("gpud: Options.Worker is empty: want the command line of a worker")
	}
	if o.User != "" && os.Geteuid() != 0 {
		return errors.New("gpud: Options.User needs a server that root started")
	}
	if o.Quota < 0 || o.MaxClients < 0 {
		return errors.New("gpud: Options.Quota and Options.MaxClients must not be negative")
	}
	o.MaxClients = cmp.Or(o.MaxClients, 256)
	if o.Timeout != 0 && o.Timeout < wire.MinSilence {
		return fmt.Errorf("gpud: Options.Timeout is %v, want at least %v", o.Timeout, wire.MinSilence)
	}
	o.patience = cmp.Or(o.patience, o.Timeout, 30*time.Second)
	o.silence = cmp.Or(o.silence, o.Timeout, wire.Silence)
	o.frozen = cmp.Or(o.frozen, o.Timeout)
	o.grace = cmp.Or(o.grace, 5*time.Second)
	if o.Offer == nil {
		o.Offer = func(driver.Info) bool { return true }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return nil
}

// MoveKeyFile returns the default file of the key for moving programs: next to the key for
// using devices, gpud-move.key for gpud.key.
func MoveKeyFile(keyFile string) string {
	ext := filepath.Ext(keyFile)
	return strings.TrimSuffix(keyFile, ext) + "-move" + ext
}

// ensureKeys reads the two keys, and makes those that are not there.
func ensureKeys(opt *Options) (keys wire.Keys, err error) {
	if keys.Use, err = wire.EnsureKey(opt.KeyFile); err != nil {
		return keys, err
	}
	file := MoveKeyFile(opt.KeyFile)
	if keys.Move, err = wire.EnsureKey(file); err != nil {
		return keys, err
	}
	if keys.Use == keys.Move {
		return keys, fmt.Errorf("gpud: %s and %s hold the same key, so every client could move all others: remove "+
			"%[2]s; gpud makes a new one",
			opt.KeyFile, file)
	}
	return keys, nil
}

// RunWorker serves the one client that the server which started this process hands over, and returns when it has gone;
// the process then has to end. See Options.Worker. It reports to standard error.
//
// First it gives up the rights that a worker does not need (see Options.Unconfined): the process starts its own program
// again, with the same arguments. Call RunWorker before anything else.
//
// Signals that ask a process to end, or gpud to evacuate, do nothing here: the
// server decides. When the server dies the process ends at once.
func RunWorker() error { return worker.Run() }
