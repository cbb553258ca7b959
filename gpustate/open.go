package gpustate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/remote"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Devices lists the devices of all APIs on this machine, except the fake. It fails
// only if no API can be used; the error has a reason for each.
func Devices() ([]Info, error) {
	infos, _, missing := discover()
	if infos = withoutFake(infos); len(infos) == 0 {
		return nil, errors.Join(missing...)
	}
	return infos, nil
}

// withoutFake is infos without the devices that tests bring.
func withoutFake(infos []Info) []Info {
	return slices.DeleteFunc(infos, func(i Info) bool { return driver.Can(i).OnRequest })
}

// discover lists all devices with their drivers.
func discover() (infos []Info, from []driver.Driver, missing []error) {
	for _, l := range drivers.All {
		found, err := l.Devices()
		if err != nil {
			missing = append(missing, err)
		}
		for _, i := range found {
			infos = append(infos, i)
			from = append(from, l)
		}
	}
	return infos, from, missing
}

// Open opens a device. The caller closes it. When nothing matches, the error is
// a *NoDeviceError that lists what there is.
func Open(sel Select) (*Device, error) {
	drv, err := openDriver(sel)
	if err != nil {
		return nil, err
	}
	d := newDevice(drv)
	d.opened.Store(&sel)
	return d, nil
}

func openDriver(sel Select) (driver.Device, error) {
	if sel.err != nil {
		return nil, sel.err
	}
	if sel.Remote != "" {
		return openRemote(context.Background(), sel)
	}
	infos, from, missing := discover()
	n := sel.pick(infos)
	if n < 0 {
		return nil, &NoDeviceError{Select: sel, Found: withoutFake(infos), Missing: missing}
	}
	return from[n].Open(infos[n].Index)
}

// Matching lists the devices that a selection describes, without regard to its Index and
// Rank, and for each the selection of only that one. Of several servers each lists its own. When nothing
// matches, the error is a *NoDeviceError that lists what there is.
func Matching(sel Select) (list []Info, alone []Select, err error) {
	if sel.err != nil {
		return nil, nil, sel.err
	}
	found, err := offered(sel)
	if err != nil {
		return nil, nil, err
	}
	place := map[string]int{}
	for _, i := range found {
		place[i.Server]++
		if sel.Place > 0 && place[i.Server] != sel.Place || sel.Place == 0 && !sel.matches(i) ||
			sel.OpenCL && !driver.Can(i).TakesOpenCL {
			continue
		}
		one := sel
		one.Remote, one.Place, one.Index, one.Rank = i.Server, place[i.Server], 0, 0
		list, alone = append(list, i), append(alone, one)
	}
	if len(list) == 0 {
		return nil, nil, &NoDeviceError{Select: sel, Found: withoutFake(found)}
	}
	return list, alone, nil
}

// offered are all devices of where a selection looks.
func offered(sel Select) ([]Info, error) {
	if sel.Remote == "" {
		found, _, missing := discover()
		if len(found) == 0 {
			return nil, errors.Join(missing...)
		}
		return found, nil
	}
	sel.Index, sel.Place = -1, 0 // none of them: the refusal lists what there is
	_, err := openDriver(sel)
	var refusal *NoDeviceError
	if !errors.As(err, &refusal) {
		return nil, err
	}
	return refusal.Found, nil
}

// KeyEnv is the environment variable that DefaultKeyFile reads.
const KeyEnv = "HOLDFAST_GPUD_KEY"

// DefaultKeyFile is the file with the key of servers where a selection names
// none: what HOLDFAST_GPUD_KEY says, otherwise holdfast/gpud.key in the user's
// configuration directory, which the nodes of a cluster usually share.
func DefaultKeyFile() (string, error) {
	if f := os.Getenv(KeyEnv); f != "" {
		return f, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("cannot locate the key file of GPU servers: %w; set %s", err, KeyEnv)
	}
	return filepath.Join(dir, "holdfast", "gpud.key"), nil
}

// openRemote opens a device of the first server that answers and has it. The
// error gives the reason for each.
func openRemote(ctx context.Context, sel Select) (driver.Device, error) {
	file := sel.KeyFile
	var err error
	if file == "" {
		if file, err = DefaultKeyFile(); err != nil {
			return nil, err
		}
	}
	key, err := wire.ReadKey(file)
	if err != nil {
		return nil, err
	}
	var errs []error
	var found []Info
	for _, addr := range strings.Fields(sel.Remote) {
		d, err := remote.Open(ctx, remote.Options{Addr: addr, Key: key, Label: label(sel), Silence: sel.Silence,
			Program: sel.Program, PID: sel.PID, Pick: sel.pick})
		if err == nil {
			return d, nil
		}
		var none *remote.NoDeviceError
		if errors.As(err, &none) {
			found = append(found, none.Found...)
		}
		errs = append(errs, err)
	}
	if found != nil {
		return nil, &NoDeviceError{Select: sel, Found: found, Missing: errs}
	}
	return nil, errors.Join(errs...)
}

// label describes the job and rank of a client, for people.
func label(sel Select) string {
	if sel.Label != "" {
		return sel.Label
	}
	if job := os.Getenv("SLURM_JOB_ID"); job != "" {
		return "job " + job + " rank " + os.Getenv("SLURM_PROCID")
	}
	return ""
}

// Info describes a device.
//
//	Kind     string // "opencl", "cuda" or "fake"
//	Platform string // OpenCL platform name; "CUDA" for CUDA
//	Vendor   string
//	Name     string
//	Version  string // version of the device's driver
//	Type     string // "gpu", "cpu" or "accelerator"
//	Index    int    // position among the devices of its kind
//	UUID     string // 32 hexadecimal digits with dashes, empty where unknown
//	PCI      string // domain:bus:device.function, empty where unknown
//	Arch     string // what binaries are built for: "sm_90", driver version for OpenCL
//	Server   string // address of the server that offers it, empty for a device of this process
//
//	GlobalBytes   int64 // device memory
//	MaxAllocBytes int64 // largest single buffer
//	LocalBytes    int64 // work-group memory
//	SubAlign      int   // alignment of sub-buffer offsets in bytes
//	MaxGroup      int   // work items in a work-group
//
//	IL         string // versions of SPIR-V that OpenCL takes, empty if none
//	FP64       bool
//	Images     bool
//	Shared     bool // SVM or managed memory
//	OutOfOrder bool
//	HostMemory bool // device memory is host memory: CPU devices
//	Lazy       bool // queues can do without an event for each command
//
//	MaxImage1D int
//	MaxImage2D [2]int
//	MaxImage3D [3]int
//	MaxLayers  int // images in an array
type Info = driver.Info

// Select says which device to open. Texts match without regard to case and
// anywhere in the device's own text; an empty one matches all. The zero value
// is the best device there is: CUDA, then an OpenCL GPU, another OpenCL
// accelerator, an OpenCL CPU device.
type Select struct {
	Kind     string // "opencl", "cuda" or "fake"; fake devices only when asked for
	Vendor   string
	Platform string
	Name     string
	Type     string // "gpu", "cpu" or "accelerator"
	UUID     string
	PCI      string // domain:bus:device.function
	Index    int    // which of the devices that match, from 0
	Place    int    // position among all devices of the machine or server, from 1; 0: any
	Rank     int    // node-local rank: devices equal to the one chosen are dealt out in turn
	OpenCL   bool   // the program's kernels are OpenCL C alone: no device that takes none

	// Remote is where the device is: the address of a `holdfast gpud`, as
	// "unix:PATH" or "HOST:PORT", or several with spaces between, of which the
	// first is taken that answers and has the device. Empty: this machine.
	Remote string
	// KeyFile holds the key of the servers. Empty: DefaultKeyFile.
	KeyFile string
	// Silence is how long a server may say nothing before it counts as lost:
	// stopped, or cut off. 0 is 15 s; at least 3 s.
	Silence time.Duration
	// Label is shown to people who look at the server's clients.
	Label string
	// Program and PID are the name and process that people are shown there. Empty and 0:
	// those of this process, which is right unless it stands for another one.
	Program string
	PID     int

	err error // what was wrong with the text it was parsed from
}

// String is the selection in one line.
func (s Select) String() string {
	var parts []string
	for _, p := range []struct{ name, value string }{
		{"kind", s.Kind}, {"vendor", s.Vendor}, {"platform", s.Platform},
		{"name", s.Name}, {"type", s.Type}, {"uuid", s.UUID}, {"pci", s.PCI},
		{"remote", s.Remote},
	} {
		if p.value != "" {
			parts = append(parts, fmt.Sprintf("%s=%q", p.name, p.value))
		}
	}
	if s.Place > 0 {
		parts = append(parts, fmt.Sprintf("place #%d", s.Place-1))
	}
	if s.OpenCL {
		parts = append(parts, "that takes OpenCL C")
	}
	if s.Index != 0 || len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("index=%d", s.Index))
	}
	return strings.Join(parts, " ")
}

// DeviceEnv is the environment variable that SelectFromEnv reads.
const DeviceEnv = "HOLDFAST_DEVICE"

// SelectFromEnv is ParseSelect of the variable HOLDFAST_DEVICE. Text that says
// nothing is reported by Open.
func SelectFromEnv() Select {
	s, err := ParseSelect(os.Getenv(DeviceEnv))
	if err != nil {
		s.err = fmt.Errorf("%s: %w", DeviceEnv, err)
	}
	return s
}

// shortNames are those of common choices.
var shortNames = map[string]Select{
	"opencl":  {Kind: "opencl"},
	"cuda":    {Kind: "cuda"},
	"fake":    {Kind: "fake"},
	"gpu":     {Type: "gpu"},
	"cpu":     {Type: "cpu"},
	"pocl":    {Kind: "opencl", Platform: "Portable Computing Language"},
	"rusticl": {Kind: "opencl", Platform: "rusticl"},
	"nvidia":  {Vendor: "NVIDIA"},
	"amd":     {Vendor: "Advanced Micro Devices"},
	"intel":   {Vendor: "Intel"},
}

// ParseSelect reads a selection from a short text: a word, optionally with
// ":index". Words are a kind (cuda, opencl, fake), a type (gpu, cpu), a well
// known platform or vendor (pocl, rusticl, nvidia, amd, intel), "uuid=..." or
// "pci=..."; "#NUMBER" is a place in the list of all devices; anything else is part of a device's
// name. Empty text is the best device there is. For a device of a server, "remote=ADDRESS" stands
// before it, or alone, and optionally "key=FILE" and "silence=DURATION", with commas between:
// "remote=node7:7070,cuda:0". Several servers are several remote=.
func ParseSelect(text string) (Select, error) {
	var far Select
	var rest []string
	for _, part := range strings.Split(strings.TrimSpace(text), ",") {
		if v, ok := strings.CutPrefix(part, "remote="); ok {
			far.Remote = strings.TrimSpace(far.Remote + " " + v)
		} else if v, ok := strings.CutPrefix(part, "key="); ok {
			far.KeyFile = v
		} else if v, ok := strings.CutPrefix(part, "silence="); ok {
			d, err := time.ParseDuration(v)
			if err != nil || d < wire.MinSilence {
				return far, fmt.Errorf("device %q: want silence=DURATION of at least %v, such as silence=30s", text,
					wire.MinSilence)
			}
			far.Silence = d
		} else {
			rest = append(rest, part)
		}
	}
	s, err := parseLocal(strings.Join(rest, ","))
	s.Remote, s.KeyFile, s.Silence = far.Remote, far.KeyFile, far.Silence
	return s, err
}

func parseLocal(text string) (Select, error) {
	word, index, indexed := strings.Cut(strings.TrimSpace(text), ":")
	if v, ok := strings.CutPrefix(text, "uuid="); ok {
		return Select{UUID: v}, nil
	}
	if v, ok := strings.CutPrefix(text, "pci="); ok {
		return Select{PCI: v}, nil
	}
	if v, ok := strings.CutPrefix(text, "#"); ok {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return Select{}, fmt.Errorf("device %q: want #NUMBER", text)
		}
		return Select{Place: n + 1}, nil
	}
	s, known := shortNames[strings.ToLower(word)]
	if !known {
		s = Select{Name: word}
	}
	if !indexed {
		return s, nil
	}
	n, err := strconv.Atoi(index)
	if err != nil || n < 0 {
		return s, fmt.Errorf("device %q: want WORD or WORD:INDEX, with an index from 0", text)
	}
	s.Index = n
	return s, nil
}

// Matches reports whether a device is one that s describes, without regard to Index,
// Rank and Remote.
func (s Select) Matches(i Info) bool { return s.matches(i) }

func (s Select) matches(i Info) bool {
	for _, p := range [][2]string{
		{i.Vendor, s.Vendor}, {i.Platform, s.Platform}, {i.Name, s.Name},
		{i.Type, s.Type}, {i.PCI, s.PCI},
		{strings.ReplaceAll(i.UUID, "-", ""), uuidDigits(s.UUID)},
	} {
		if !strings.Contains(strings.ToLower(p[0]), strings.ToLower(p[1])) {
			return false
		}
	}
	if s.OpenCL && !driver.Can(i).TakesOpenCL {
		return false
	}
	return s.Kind == "" && !driver.Can(i).OnRequest || strings.EqualFold(s.Kind, i.Kind)
}

// uuidDigits drops what people write around the digits: "GPU-" and dashes.
func uuidDigits(s string) string {
	s = strings.TrimPrefix(strings.ToLower(s), "gpu-")
	return strings.ReplaceAll(s, "-", "")
}

// class orders devices: lower is better.
func class(i Info) int {
	switch {
	case driver.Can(i).Native:
		return 0
	case i.Type == "gpu":
		return 1
	case i.Type == "cpu":
		return 3
	}
	return 2
}

// pick finds the device among infos, -1 if there is none.
func (s Select) pick(infos []Info) int {
	var match []int
	best := 4
	for n, i := range infos {
		if s.Place > 0 && n == s.Place-1 && (!s.OpenCL || driver.Can(i).TakesOpenCL) {
			return n // whatever it is
		}
		if s.Place > 0 || !s.matches(i) {
			continue
		}
		if c := class(i); c < best {
			best, match = c, nil
		}
		if class(i) == best {
			match = append(match, n)
		}
	}
	if s.Index < 0 || s.Index >= len(match) || s.Rank < 0 {
		return -1
	}
	// ranks are dealt equals, so that all of a job compute alike
	first := infos[match[s.Index]]
	var equal []int
	at := 0
	for n, m := range match {
		if i := infos[m]; i.Kind == first.Kind && i.Platform == first.Platform && i.Name == first.Name {
			if n == s.Index {
				at = len(equal)
			}
			equal = append(equal, m)
		}
	}
	return equal[(at+s.Rank)%len(equal)]
}
