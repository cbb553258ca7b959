package gputest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/cuda"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// stamp is a program that gives a number of its own, so that it cannot be taken for
// another one, whichever of its forms the device has loaded. If the device keeps
// variables of programs, it adds the number of its runs, which it counts in one.
type stamp struct {
	common
	number   uint32
	launches uint32
	counts   bool
	form     form

	p   *gpustate.Program
	k   *gpustate.Kernel
	out *gpustate.Buffer
}

// form is what a stamp's program is given as.
type form struct {
	name  string
	src   gpustate.Sources
	loads bool // on the platform's device, where it is a binary
	bare  bool // a binary without a source
}

// scale keeps the number of a stamp apart from its launches.
const scale = 10000

func init() {
	fake.Register("stamp", 1, func(l fake.Launch) {
		le, words := binary.LittleEndian, strings.Fields(l.Text)
		var v uint32
		_, _ = fmt.Sscan(words[slices.Index(words, "number")+1], &v)
		v *= scale
		if ticks := l.Globals["ticks"]; ticks != nil {
			v += le.Uint32(ticks)
			le.PutUint32(ticks, le.Uint32(ticks)+1)
		}
		le.PutUint32(l.Args[0].Bytes, v)
	})
}

func (s *stamp) make(m *model) (err error) {
	if s.p, err = m.dev.Program(s.name, s.form.src, ""); err != nil {
		return err
	}
	if s.k, err = s.p.NewKernel("stamp"); err != nil {
		return err
	}
	if s.out, err = m.dev.Buffer(s.name, 4); err != nil {
		return err
	}
	return s.k.SetArgs(s.out)
}

func (s *stamp) release() error {
	return errors.Join(s.k.Release(), s.p.Release(), s.out.Release())
}

// stamp makes, releases or uses stamps now and then.
func (m *model) stamp() {
	m.b.Helper()
	list := find[*stamp](m)
	away := m.dev.Info().Kind != m.b.sel.Kind // on the fake, which takes other forms
	switch k := m.luck.IntN(30); {
	case k < 2 && len(list) < 6 && !away:
		m.addStamp()
	case k < 3 && len(list) > 0:
		m.end(list[m.luck.IntN(len(list))])
	case k < 5 && !away:
		m.hidden()
	case k < 9:
		m.runStamps()
	}
	for _, s := range find[*stamp](m) {
		if s.form.bare && m.luck.IntN(10) == 0 { // they keep the program from moving
			m.end(s)
		}
	}
}

func (m *model) addStamp() {
	m.b.Helper()
	m.made++
	s := &stamp{number: uint32(m.made), counts: m.b.sel.Kind != "opencl"}
	if m.luck.IntN(2) == 0 {
		s.name = fmt.Sprint("stamp ", m.made)
	}
	forms := m.forms(s.number)
	s.form = forms[m.luck.IntN(len(forms))]
	m.bare = m.bare || s.form.bare
	m.add(s)
}

// forms returns those that a stamp can have on the platform.
func (m *model) forms(n uint32) []form {
	note := fmt.Sprintf("// stamp number %d global ticks 4\n", n) // for the fake
	switch m.b.sel.Kind {
	case "cuda":
		return cudaForms(note+cudaStamp(n), n, m.dev.Info().Arch)
	case "opencl":
		src := gpustate.Sources{OpenCL: fmt.Sprintf("// stamp number %d\n__kernel void stamp(__global uint *out) { "+
			"out[0] = %du; }\n", n, n*scale)}
		return binaryForms(src, func(s *gpustate.Sources, b []byte) {
			s.IL = b
		}, spirvStamp(n*scale, false), m.dev.Info().IL != "")
	}
	src, image := gpustate.Sources{OpenCL: note}, fake.Binary(fake.Default.Arch, note)
	return append(binaryForms(src, func(s *gpustate.Sources, b []byte) { s.PTX = b }, image, true),
		binaryForms(src, func(s *gpustate.Sources, b []byte) { s.IL = b }, image, true)...)
}

// binaryForms returns a source, with a binary form, with one that is of no use, and the binary
// alone where devices load it.
func binaryForms(src gpustate.Sources, give func(*gpustate.Sources, []byte), image []byte, loads bool) []form {
	list := []form{{name: "source", src: src, loads: true}}
	for _, f := range []form{{name: "binary", loads: loads}, {name: "broken binary"},
		{name: "bare binary", loads: loads, bare: true}} {
		b := image
		if f.name == "broken binary" {
			b = []byte("\x03\x02\x23\x07 .version 7.0 of nothing")
		}
		if f.bare && !loads {
			continue
		}
		if !f.bare {
			f.src = src
		}
		give(&f.src, b)
		list = append(list, f)
	}
	return list
}

func cudaForms(source string, n uint32, arch string) []form {
	src, ptx := gpustate.Sources{CUDA: source}, func(s *gpustate.Sources, b []byte) { s.PTX = b }
	list := binaryForms(src, ptx, ptxStamp(n*scale), true)
	if cubin, err := cuda.Cubin(source, arch); err == nil { // if NVRTC is there
		list = append(list, binaryForms(src, ptx, cubin, true)[1:]...)
	}
	newer := form{name: "PTX of a newer device", src: src}
	newer.src.PTX = []byte(strings.ReplaceAll(string(ptxStamp(n*scale)), ".target sm_75", ".target sm_999"))
	return append(list, newer)
}

func cudaStamp(n uint32) string {
	return fmt.Sprintf(`__device__ unsigned ticks;
extern "C" __global__ void stamp(unsigned *out) { out[0] = %du + ticks; ticks += 1; }
`, n*scale)
}

func ptxStamp(v uint32) []byte {
	return fmt.Appendf(nil, `.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 ticks;
.visible .entry stamp(.param .u64 out)
{
	.reg .u32 %%r<4>;
	.reg .u64 %%rd<3>;
	ld.param.u64 %%rd1, [out];
	cvta.to.global.u64 %%rd2, %%rd1;
	ld.global.u32 %%r1, [ticks];
	add.u32 %%r2, %%r1, %d;
	st.global.u32 [%%rd2], %%r2;
	add.u32 %%r3, %%r1, 1;
	st.global.u32 [ticks], %%r3;
	ret;
}
`, v)
}

// spirvStamp returns a module with the kernel stamp, with a variable in global memory if that
// is asked for.
func spirvStamp(v uint32, variable bool) []byte {
	const void, integer, pointer, function, value, kernel, out, label, kept, bound = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
	const global = 5 // CrossWorkgroup
	words := []uint32{0x07230203, 0x00010000, 0, bound, 0}
	add := func(op uint32, operands ...uint32) {
		words = append(append(words, uint32(len(operands)+1)<<16|op), operands...)
	}
	add(17, 4)                          // OpCapability Addresses
	add(17, 6)                          // OpCapability Kernel
	add(14, 2, 2)                       // OpMemoryModel Physical64 OpenCL
	add(15, 6, kernel, 0x6d617473, 'p') // OpEntryPoint Kernel "stamp"
	add(19, void)                       // OpTypeVoid
	add(21, integer, 32, 0)             // OpTypeInt
	add(32, pointer, global, integer)   // OpTypePointer
	add(33, function, void, pointer)    // OpTypeFunction
	add(43, integer, value, v)          // OpConstant
	if variable {
		add(59, pointer, kept, global, value) // OpVariable
	}
	add(54, void, kernel, 0, function) // OpFunction
	add(55, pointer, out)              // OpFunctionParameter
	add(248, label)                    // OpLabel
	add(62, out, value, 2, 4)          // OpStore Aligned 4
	add(253)                           // OpReturn
	add(56)                            // OpFunctionEnd
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

// hidden gives a program with data that the platform can neither read nor write: it is
// refused, or not taken at all, unless nothing of it need be kept.
func (m *model) hidden() {
	m.b.Helper()
	src, options := gpustate.Sources{OpenCL: "stamp hidden number 1", CUDA: heapSource}, ""
	switch {
	case m.b.sel.Kind == "opencl" && m.luck.IntN(2) == 0:
		src = gpustate.Sources{IL: spirvStamp(1, true)}
	case m.b.sel.Kind == "opencl":
		src, options = gpustate.Sources{OpenCL: keptSource}, "-cl-std=CL2.0"
	case m.b.sel.Kind == "cuda":
		src.OpenCL = ""
	default:
		src.CUDA = ""
	}
	if p, err := m.dev.Program("hidden", src, options); err == nil {
		m.b.ok(p.Release())
		m.b.Fatal("a program with data that no capture saves was not refused")
	}
	p, err := m.dev.Program("hidden", src, options+" "+gpustate.Stateless)
	if m.b.sel.Kind == "opencl" && err != nil {
		return // the platform has no such language
	}
	m.b.ok(err)
	m.b.ok(p.Release())
}

// runStamps launches each stamp and checks what it gives, and that the device tells which
// ones it built from source.
func (m *model) runStamps() {
	m.b.Helper()
	var names []string
	for _, s := range m.dev.BuiltFromSource() {
		names = append(names, s.Program)
	}
	for _, s := range find[*stamp](m) {
		_, err := m.q.q.Launch(s.k, []int{1}, []int{1})
		m.b.ok(err)
		got := make([]byte, 4)
		m.b.ok(m.q.q.Read(s.out, 0, got))
		want := s.number * scale
		if s.counts {
			want += s.launches
		}
		if v := binary.NativeEndian.Uint32(got); v != want {
			m.b.Fatalf("stamp %d, made from %s, gives %d after %d launches, want %d", s.number, s.form.name, v,
				s.launches, want)
		}
		s.launches++
		fromSource := s.form.name != "source" && (!s.form.loads || m.dev.Info().Kind != m.b.sel.Kind)
		if s.name != "" && slices.Contains(names, s.name) != fromSource {
			m.b.Fatalf("stamp %d, made from %s: built from source %v, the device tells of %q", s.number, s.form.name,
				fromSource, names)
		}
	}
}

// stays reports whether a move to the fake is refused as it should be: some stamp has nothing
// that the fake takes.
func (m *model) stays(to gpustate.Select, err error) bool {
	m.b.Helper()
	if to.Kind == m.b.sel.Kind || !m.bare {
		return false
	}
	bare := slices.ContainsFunc(find[*stamp](m), func(s *stamp) bool { return s.form.bare })
	if bare && err == nil {
		m.b.Fatal("a program moved to a device that does not take it")
	}
	var failed *gpustate.BuildError
	return errors.As(err, &failed) || errors.Is(err, gpustate.ErrNoSource)
}

// counter is a program whose variables count the launches of its kernel, with a constant
// that is written now and then. Random programs have some beside their objects, where programs
// can have variables.
type counter struct {
	name  string
	alive bool
	counted

	p   *gpustate.Program
	k   *gpustate.Kernel
	out *gpustate.Buffer
}

// counted is what the variables of a counter hold.
type counted struct{ launches, scale uint32 }

// countSources are as tickSources, with the same variables on all devices.
var countSources = gpustate.Sources{
	OpenCL: "count global ticks 4 global others 12 constant scale 4", // for the fake
	CUDA: `
__device__ unsigned ticks, others[3];
__constant__ unsigned scale;

extern "C" __global__ void count(unsigned *out) {
	out[0] = ticks + 100 * others[2] + scale;
	ticks += 1;
	others[2] += 2;
}
`}

func init() {
	fake.Register("count", 1, func(l fake.Launch) {
		le := binary.LittleEndian
		a, b := l.Globals["ticks"], l.Globals["others"][8:]
		le.PutUint32(l.Args[0].Bytes, le.Uint32(a)+100*le.Uint32(b)+le.Uint32(l.Globals["scale"]))
		le.PutUint32(a, le.Uint32(a)+1)
		le.PutUint32(b, le.Uint32(b)+2)
	})
}

func (c *counter) make(d *gpustate.Device) (err error) {
	if c.p, err = d.Program(c.name, countSources, ""); err != nil {
		return err
	}
	if c.k, err = c.p.Kernel("count"); err != nil {
		return err
	}
	if c.out, err = d.Buffer(c.name, 4); err != nil {
		return err
	}
	return c.k.SetArgs(c.out)
}

func (c *counter) release() error { return errors.Join(c.p.Release(), c.k.Release(), c.out.Release()) }

// count launches and checks what the variables have counted before.
func (m *model) count(c *counter) {
	m.b.Helper()
	_, err := m.q.q.Launch(c.k, []int{1}, nil)
	m.b.ok(err)
	got := make([]byte, 4)
	m.b.ok(m.q.q.Read(c.out, 0, got))
	if v := binary.LittleEndian.Uint32(got); v != 201*c.launches+c.scale {
		m.b.Fatalf("the variables of %q say %d after %d launches, want %d", c.name, v, c.launches,
			201*c.launches+c.scale)
	}
	c.launches++
}

// tick makes, releases or uses counters now and then. It draws from luck of its own,
// so that the rest of a program does not depend on it.
func (m *model) tick() {
	m.b.Helper()
	if m.b.sel.Kind != "fake" && m.b.sel.Kind != "cuda" {
		return
	}
	switch m.luck.IntN(14) {
	case 0:
		if len(m.counters) < 6 {
			c := &counter{name: fmt.Sprint("counter ", len(m.counters)), alive: true}
			m.b.ok(c.make(m.dev))
			m.counters = append(m.counters, c)
		}
	case 1:
		for _, c := range m.counters {
			if c.alive && m.luck.IntN(8) == 0 {
				c.alive = false
				m.b.ok(c.release())
			}
		}
	case 2, 3, 4:
		m.countAll()
	case 5:
		for _, c := range m.counters {
			if c.alive && m.luck.IntN(2) == 0 {
				m.rescale(c)
			}
		}
	}
}

// rescale writes the constant of a counter.
func (m *model) rescale(c *counter) {
	m.b.Helper()
	v, err := c.p.Variable("scale")
	m.b.ok(err)
	c.scale = m.luck.Uint32N(1000)
	m.b.ok(m.q.q.Write(v, 0, gpustate.Bytes([]uint32{c.scale})))
}

func (m *model) countAll() {
	m.b.Helper()
	for _, c := range m.counters {
		if c.alive {
			m.count(c)
		}
	}
}

// recount makes the counters again that a restarted program has.
func (m *model) recount() {
	m.b.Helper()
	for _, c := range m.counters {
		if c.alive {
			m.b.ok(c.make(m.dev))
		}
	}
}
