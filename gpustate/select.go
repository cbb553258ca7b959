package gpustate

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/cl"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

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
//	GlobalBytes   int64 // bytes of device memory
//	MaxAllocBytes int64 // bytes of the largest single buffer
//	LocalBytes    int64 // bytes of work-group memory
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
//	MaxImage1D int // extents of images in pixels
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

	// Remote is the address of a `holdfast gpud`, as "unix:PATH" or "HOST:PORT". Of several with spaces between, the
	// first that answers and has the device is taken. Empty: this machine.
	Remote string
	// KeyFile holds the key of the servers. Empty: DefaultKeyFile.
	KeyFile string
	// Silence is the time without a message after which a server counts as lost: stopped, or cut off. 0 means 15 s; the
	// least is 3 s.
	Silence time.Duration
	// Label is shown to people who look at the server's clients.
	Label string
	// Program and PID are the name and process that people are shown there. Empty and 0: the host and number of this
	// process, unless it stands for another one.
	Program string
	PID     int

	err error // the fault of the text from which it was parsed
}

// String returns the selection in one line, for people.
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

// SelectFromEnv is ParseSelect of the variable HOLDFAST_DEVICE. If the text is wrong, Open returns the error.
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

// ParseSelect reads a selection from a short text: a word, optionally with ":index". Words are a kind (cuda, opencl,
// fake), a type (gpu, cpu), a well known platform or vendor (pocl, rusticl, nvidia, amd, intel), "uuid=..." or
// "pci=...". "#NUMBER" is a place in the list of all devices. Any other word is part of a device's name. Empty text is
// the best device there is. For a device of a server, "remote=ADDRESS" stands before it, or alone, and optionally
// "key=FILE" and "silence=DURATION", with commas between: "remote=node7:7070,cuda:0". Several servers are several
// remote=.
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
func (s Select) Matches(i Info) bool {
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

// uuidDigits drops the text that people write around the digits: "GPU-" and dashes.
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
		if s.Place > 0 || !s.Matches(i) {
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

// NoDeviceError is a selection that no device matches. It lists the devices found
// and the APIs missing on the machine.
type NoDeviceError struct {
	Select  Select
	Found   []Info
	Missing []error
}

// Error lists the devices that there are.
func (e *NoDeviceError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no device matches %s; there are:", e.Select)
	for _, i := range e.Found {
		fmt.Fprintf(&b, "\n  %s", i)
	}
	if len(e.Found) == 0 {
		b.WriteString(" none")
	}
	for _, err := range e.Missing {
		fmt.Fprintf(&b, "\n  %v", err)
	}
	return b.String()
}

// Unwrap gives the errors of the APIs that could not be used.
func (e *NoDeviceError) Unwrap() []error { return e.Missing }

// CLDevices lists the OpenCL devices of this machine, for CLDeviceInfo and CLPlatformInfo. The error names the library
// that is missing.
func CLDevices() ([]Info, error) { return cl.System.Devices() }

// CLDeviceInfo returns the answer of clGetDeviceInfo for a device of CLDevices, which need not be open, as OpenCL lays
// it out; nil if the device lacks it.
func CLDeviceInfo(of Info, param uint32) []byte { return cl.System.Property(of.Index, param) }

// CLPlatformInfo returns a text that clGetPlatformInfo gives of the platform of a device of CLDevices.
func CLPlatformInfo(of Info, param uint32) string { return cl.System.PlatformText(of.Index, param) }

// CLInfo returns the answer of clGetDeviceInfo for the present device, as OpenCL lays it out. An API other than OpenCL,
// a question that the platform does not know and one whose answer is a handle are errors; the first matches
// ErrUnsupported.
func (d *Device) CLInfo(param uint32) ([]byte, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	return d.state.Session.Query(driver.Query{Of: driver.QueryDevice, Param: param})
}

// query asks about the object; for a released one the error matches ErrReleased.
func (i item) query(q driver.Query) (b []byte, err error) {
	err = i.ask(func(d driver.Device) (err error) {
		q.Object = i.e.Handle
		b, err = d.Query(q)
		return err
	})
	return b, err
}

// ask asks the driver about the object, which no other call changes meanwhile.
func (i item) ask(do func(driver.Device) error) error {
	if err := i.dev.enter(); err != nil {
		return err
	}
	defer i.dev.leave()
	if k := i.e.Kernel; k != nil {
		k.Mu.Lock()
		defer k.Mu.Unlock()
	}
	i.e.Use.RLock()
	defer i.e.Use.RUnlock()
	if err := i.usable(i.dev); err != nil {
		return i.fail("ask about", err)
	}
	return i.fail("ask about", do(i.dev.state.Session.Device))
}
