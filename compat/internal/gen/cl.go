package gen

import (
	"fmt"
	"strings"
	"unicode"
)

// enum is a type of go-opencl with its values. Their names follow Prefix; "_" leaves a number out, and
// "Name=0x1" gives one. Those without count from First on or, of a set, are the bits from 0 on.
type enum struct {
	Name, Base, Doc string
	Prefix          string
	First           int
	Set             bool
	Names           string
	Text            string // of no value that has a name; "" if the type has no String
}

const number = `fmt.Sprintf("Unknown(%x)", int(v))`

var enums = []enum{
	{"DeviceType", "uint", "is a set of kinds of devices.", "DeviceType", 0, true,
		"Default CPU GPU Accelerator All=0xFFFFFFFF", `"None"`},
	{"FPConfig", "int", "is what a device can do with floating-point numbers.", "FPConfig", 0, true,
		"Denorm InfNaN RoundToNearest RoundToZero RoundToInf FMA SoftFloat CorrectlyRoundedDivideSqrt", `""`},
	{"LocalMemType", "int", "says where a device's local memory is.", "LocalMemType", 0, false,
		"None Local Global", `"Unknown"`},
	{"ExecCapability", "int", "is what a device can run.", "ExecCapability", 0, true, "Kernel NativeKernel", `""`},
	{"MemCacheType", "int", "says what cache a device's global memory has.", "MemCacheType", 0, false,
		"None ReadOnlyCache ReadWriteCache", number},
	{"MemFlag", "int", "says how a memory object is used and made.", "Mem", 0, true,
		"ReadWrite WriteOnly ReadOnly UseHostPtr AllocHostPtr CopyHostPtr _ HostWriteOnly HostReadOnly " +
			"HostNoAccess", ""},
	{"MemObjectType", "int", "is the kind of a memory object.", "MemObjectType", 0x10F0, false,
		"Buffer Image2D Image3D Image2DArray Image1D Image1DArray Image1DBuffer", ""},
	{"MapFlag", "int", "says what mapped memory is used for. With MapFlagWriteInvalidateRegion\n" +
		"// the mapped bytes are undefined before they are written.", "MapFlag", 0, true,
		"Read Write WriteInvalidateRegion", ""},
	{"ChannelOrder", "int", "is the order of the channels of a pixel.", "ChannelOrder", 0x10B0, false,
		"R A RG RA RGB RGBA BGRA ARGB Intensity Luminance Rx RGx RGBx Depth DepthStencil", number},
	{"ChannelDataType", "int", "is the type of one channel of a pixel.", "ChannelDataType", 0x10D0, false,
		"SNormInt8 SNormInt16 UNormInt8 UNormInt16 UNormShort565 UNormShort555 UNormInt101010 SignedInt8 SignedInt16 " +
			"SignedInt32 UnsignedInt8 UnsignedInt16 UnsignedInt32 HalfFloat Float UNormInt24", number},
	{"ProfilingInfo", "int", "is a moment in the life of a command.", "ProfilingInfoCommand", 0x1280, false,
		"Queued Submit Start End", ""},
	{"CommmandExecStatus", "int", "is how far a command has come. The name is spelled as in the original.",
		"CommmandExecStatus", 0, false, "Complete Running Submitted Queued", ""},
	{"CommandQueueProperty", "int", "says how a queue works.", "CommandQueue", 0, true,
		"OutOfOrderExecModeEnable ProfilingEnable", ""},
}

// value is a constant of an enum. String has no text for those with a number of their own.
type value struct {
	Name, Number, Text string
}

// Values returns the constants of the type.
func (e enum) Values() (out []value) {
	for i, name := range strings.Fields(e.Names) {
		v := value{Name: e.Prefix + name, Text: strings.TrimSuffix(name, "Cache")}
		if base, n, given := strings.Cut(name, "="); given {
			v = value{Name: e.Prefix + base, Number: n}
		} else if e.Set {
			v.Number = fmt.Sprintf("1 << %d", i)
		} else if v.Number = fmt.Sprint(i); e.First != 0 {
			v.Number = fmt.Sprintf("%#X", e.First+i)
		}
		if name != "_" {
			out = append(out, v)
		}
	}
	return out
}

const enumsText = `
package cl

import "fmt"
{{range .}}
// {{.Name}} {{.Doc}}
type {{.Name}} {{.Base}}

// The values of {{.Name}}.
const (
{{- $enum := .}}
{{- range .Values}}
	{{.Name}} {{$enum.Name}} = {{.Number}}
{{- end}}
)
{{if .Text}}
// String names {{if .Set}}the bits that are set{{else}}the value{{end}}.
func (v {{.Name}}) String() string {
	return {{if .Set}}bits(int(v), {{.Text}}{{else}}pick(int(v)-{{.First}}, {{.Text}}{{end}},
{{- range .Values}}{{if .Text}}
	"{{.Text}}",{{end}}{{end}}
	)
}
{{end}}
{{- end}}`

// properties are the methods of Device that ask it: their results, the number of the property, and the unit.
// MaxWorkItemSizes and ParentDevice are written by hand.
const properties = `
string Name                    102b
string Vendor                  102c
string DriverVersion           102d
string Profile                 102e
string Version                 102f
string Extensions              1030
string OpenCLCVersion          103d
string BuiltInKernels          103f
int    AddressBits             100d
int    GlobalMemCachelineSize  101d, in bytes
int    GlobalMemCacheSize      101e, in bytes
int    MaxClockFrequency       100c, in MHz
int    MaxComputeUnits         1002
int    MaxConstantArgs         1021
int    MaxReadImageArgs        100e
int    MaxSamplers             1018
int    MaxWorkItemDimensions   1003
int    MaxWriteImageArgs       100f
int    MemBaseAddrAlign        1019, in bits
int    Image2DMaxWidth         1011, in pixels
int    Image2DMaxHeight        1012, in pixels
int    Image3DMaxWidth         1013, in pixels
int    Image3DMaxHeight        1014, in pixels
int    Image3DMaxDepth         1015, in pixels
int    ImageMaxBufferSize      1040, in pixels
int    ImageMaxArraySize       1041
int    MaxParameterSize        1017, in bytes
int    MaxWorkGroupSize        1004
int    ProfilingTimerResolution 1025, in nanoseconds
int    NativeVectorWidthChar   1036
int    NativeVectorWidthShort  1037
int    NativeVectorWidthInt    1038
int    NativeVectorWidthLong   1039
int    NativeVectorWidthFloat  103a
int    NativeVectorWidthDouble 103b
int    NativeVectorWidthHalf   103c
int    PreferredVectorWidthChar   1006
int    PreferredVectorWidthShort  1007
int    PreferredVectorWidthInt    1008
int    PreferredVectorWidthLong   1009
int    PreferredVectorWidthFloat  100a
int    PreferredVectorWidthDouble 100b
int    PreferredVectorWidthHalf   1034
int64  LocalMemSize            1023, in bytes
int64  MaxConstantBufferSize   1020, in bytes
int64  MaxMemAllocSize         1010, in bytes
int64  GlobalMemSize           101f, in bytes
bool   ImageSupport            1016
bool   ErrorCorrectionSupport  1024
bool   EndianLittle            1026
bool   Available               1027
bool   CompilerAvailable       1028
bool   HostUnifiedMemory       1035
bool   LinkerAvailable         103e
DeviceType     Type            1000
FPConfig       DoubleFPConfig  1032, 0 without double precision
FPConfig       HalfFPConfig    1033, 0 without half precision
LocalMemType   LocalMemType    1022
ExecCapability ExecutionCapabilities 1029
MemCacheType   GlobalMemCacheType    101c
`

// property is a row of properties.
type property struct {
	Type, Name, Number, Unit string
}

// Call returns the method's value.
func (p property) Call() string {
	switch p.Type {
	case "string":
		return "d.text(0x" + p.Number + ")"
	case "bool":
		return "d.number(0x" + p.Number + ") != 0"
	case "int64":
		return "d.number(0x" + p.Number + ")"
	}
	return p.Type + "(d.number(0x" + p.Number + "))"
}

// Constant returns the property's name in the specification.
func (p property) Constant() string {
	switch p.Name {
	case "DriverVersion":
		return "CL_DRIVER_VERSION"
	case "OpenCLCVersion":
		return "CL_DEVICE_OPENCL_C_VERSION"
	}
	return "CL_DEVICE_" + strings.ToUpper(strings.Join(words(p.Name), "_"))
}

func parseProperties() (out []property) {
	for row := range strings.Lines(strings.TrimSpace(properties)) {
		row, unit, _ := strings.Cut(strings.TrimSpace(row), ", ")
		f := strings.Fields(row)
		if unit != "" {
			unit = ", " + unit
		}
		out = append(out, property{f[0], f[1], f[2], unit})
	}
	return out
}

const propertiesText = `
package cl
{{range .}}
// {{.Name}} is {{.Constant}}{{.Unit}}.
func (d *Device) {{.Name}}() {{.Type}} { return {{.Call}} }
{{end}}`

// codes are the errors of OpenCL, of the numbers from the first down.
var codes = []struct {
	first int
	names string
}{
	{-1, `DeviceNotFound DeviceNotAvailable CompilerNotAvailable MemObjectAllocationFailure OutOfResources
		OutOfHostMemory ProfilingInfoNotAvailable MemCopyOverlap ImageFormatMismatch ImageFormatNotSupported
		BuildProgramFailure MapFailure MisalignedSubBufferOffset ExecStatusErrorForEventsInWaitList
		CompileProgramFailure LinkerNotAvailable LinkProgramFailure DevicePartitionFailed KernelArgInfoNotAvailable`},
	{-30, `InvalidValue InvalidDeviceType InvalidPlatform InvalidDevice InvalidContext InvalidQueueProperties
		InvalidCommandQueue InvalidHostPtr InvalidMemObject InvalidImageFormatDescriptor InvalidImageSize
		InvalidSampler InvalidBinary InvalidBuildOptions InvalidProgram InvalidProgramExecutable InvalidKernelName
		InvalidKernelDefinition InvalidKernel InvalidArgIndex InvalidArgValue InvalidArgSize InvalidKernelArgs
		InvalidWorkDimension InvalidWorkGroupSize InvalidWorkItemSize InvalidGlobalOffset InvalidEventWaitList
		InvalidEvent InvalidOperation InvalidGlObject InvalidBufferSize InvalidMipLevel InvalidGlobalWorkSize
		InvalidProperty InvalidImageDescriptor InvalidCompilerOptions InvalidLinkerOptions
		InvalidDevicePartitionCount`},
}

// code is an error of OpenCL.
type code struct {
	Name, Text string
	Number     int
}

func parseCodes() (out []code) {
	for _, c := range codes {
		for i, name := range strings.Fields(c.names) {
			out = append(out, code{name, strings.Join(words(name), " "), c.first - i})
		}
	}
	return out
}

const codesText = `
package cl

import "errors"

// The errors of OpenCL.
var (
{{- range .}}
	Err{{.Name}} = errors.New("cl: {{.Text}}")
{{- end}}
)

// byCode finds the error of a number.
var byCode = map[int]error{
{{- range .}}
	{{.Number}}: Err{{.Name}},
{{- end}}
}
`

// words returns the words of a name: DoubleFPConfig is Double, FP and Config.
func words(name string) (out []string) {
	runes, from := []rune(name), 0
	for i := 1; i < len(runes); i++ {
		if unicode.IsUpper(runes[i]) && (unicode.IsLower(runes[i-1]) ||
			i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			out, from = append(out, string(runes[from:i])), i
		}
	}
	return append(out, string(runes[from:]))
}
