package request

import (
	"fmt"
	"runtime"
	"strings"
)

// Site is where the program made a call: return addresses, innermost first.
type Site [16]uintptr

// NoteSite notes where the call that is being made comes from.
func NoteSite() *Site {
	s := new(Site)
	runtime.Callers(2, s[:])
	return s
}

// Frames returns the frames of the program, innermost first.
func (s *Site) Frames() []runtime.Frame {
	n := 0
	for n < len(s) && s[n] != 0 {
		n++
	}
	var out []runtime.Frame
	all := runtime.CallersFrames(s[:n])
	for {
		f, more := all.Next()
		if f.PC != 0 && (len(out) > 0 || ofProgram(&f)) {
			out = append(out, f)
		}
		if !more {
			return out
		}
	}
}

// ofProgram says whether a frame is the program's, not mpiwrap's.
func ofProgram(f *runtime.Frame) bool {
	return strings.HasSuffix(f.File, "_test.go") ||
		!strings.Contains(f.Function, "/mpiwrap.") && !strings.Contains(f.Function, "/mpiwrap/mpi.") &&
			!strings.Contains(f.Function, "/mpiwrap/internal/")
}

// String is file:line of the innermost frame of the program.
func (s *Site) String() string {
	if s == nil {
		return ""
	}
	for _, f := range s.Frames() {
		return fmt.Sprintf("%s:%d", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
	}
	return "unknown"
}
