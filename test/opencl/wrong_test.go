package opencl

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// answer is a line of wrong.c: the code that came back, and those that the specification allows.
type answer struct {
	got  string
	want []string
}

var answerLine = regexp.MustCompile(`(?m)^(.*): (-?\d+), want (.*)$`)

// wrongCalls runs wrong.c and reads what it printed.
func (l *lab) wrongCalls(env []string, args ...string) map[string]answer {
	l.t.Helper()
	all := map[string]answer{}
	for _, m := range answerLine.FindAllStringSubmatch(l.run(env, "wrong", args...), -1) {
		if _, twice := all[m[1]]; twice {
			l.t.Errorf("%q is tried twice", m[1])
		}
		all[m[1]] = answer{m[2], strings.Split(m[3], "|")}
	}
	return all
}

// byLoader are calls that the loader answers, or changes, before a platform sees them.
var byLoader = map[string]string{
	"clGetPlatformInfo, no object":   "0", // it asks the first platform
	"clUnloadPlatformCompiler, none": "0",
}

// byDevice are codes that devices give and the library passes on.
var byDevice = map[string]map[string]string{
	"rusticl": {"build, an option that is none": "-11", "compile, an option that is none": "-15"},
}

// poclLeaves are the calls for which PoCL 3.1 leaves the specification. The library follows it.
var poclLeaves = map[string]string{
	// no type, or none of the type: it finds no device, or makes a context all the same
	"clGetDeviceIDs, a type that is none": "-1", "clGetDeviceIDs, type 0": "-1",
	"clCreateContextFromType, a type that is none": "78", "clCreateContextFromType, none of the type": "78",
	// it takes an image for a buffer
	"read, of an image": "0", "clGetImageInfo, of a buffer": "0", "argument, a buffer for a sampler": "0",
	"argument, a buffer for an image": "0", "argument, no image": "0",
	// nothing to do is no error, as in OpenCL 2.1
	"read, size 0": "0", "write, size 0": "0", "read image, empty": "0", "launch, no size": "0",
	"launch, size 0": "0", "launch, groups of 0": "0",
	// flags and pitches that it does not look at
	"map, an unknown flag": "0", "map, invalidates and reads": "0", "map image, an unknown flag": "0",
	"formats, an unknown flag": "0", "sampler, unknown addressing": "0", "sampler, unknown filter": "0",
	"clCreateSamplerWithProperties, a wrong value": "0", "image, a pitch without bytes": "0",
	"image, a small pitch": "0", "read image, small pitch": "0", "read image, a slice of a plane": "0",
	"write image, small pitch": "0", "compile, a list without headers": "0", "link, what is not compiled": "0",
	// other errors than the specification's
	"image, an unknown type of channels": "-59", "image, an unknown order of channels": "-59",
	"image, a type for other channels": "-59", "image, a format that the device does not have": "-59",
	"image, too high": "-59", "image, an unknown type": "-30", "image, a buffer": "-30", "image, width 0": "-61",
	"image, a plane on a buffer, crooked": "-30", "image, an uneven pitch": "-30", "image, on no buffer": "-38",
	"image, larger than its buffer": "-38", "clCreateImage2D, width 0": "-61", "clCreateImage3D, depth 0": "-61",
}

// TestWrongCalls: calls with wrong arguments, of each kind that the specification of OpenCL 1.2
// names, are refused with the codes that it gives for them, on both devices, and on PoCL behind a server. So does
// PoCL itself, but for what poclLeaves lists.
func TestWrongCalls(t *testing.T) {
	onPoCL(t)
	l := newLab(t)
	var tried map[string]answer
	l.serve()
	for _, device := range []string{platform, another, "remote=" + l.socket() + "," + platform} {
		tried = l.wrongCalls(through(device), "all")
		for what, a := range tried {
			if byLoader[what] != a.got && byDevice[device][what] != a.got && !slices.Contains(a.want, a.got) {
				t.Errorf("on %s: %s: got %s, want %v", device, what, a.got, a.want)
			}
		}
	}
	itself := l.wrongCalls(without)
	if len(tried) < 1000 || len(itself) < 1000 {
		t.Errorf("%d calls tried, and %d without the library: those are not all", len(tried), len(itself))
	}
	for what, a := range itself {
		if tried[what].want == nil {
			t.Errorf("%s is tried without the library alone", what)
		}
		if odd := poclLeaves[what]; odd != "" && odd != a.got {
			t.Errorf("PoCL: %s: got %s, but the list of differences has %s", what, a.got, odd)
		} else if odd == "" && byLoader[what] != a.got && !slices.Contains(a.want, a.got) {
			t.Errorf("PoCL: %s: got %s, want %v, or a difference in the list", what, a.got, a.want)
		}
	}
}
