// Package source says which programs of clients a server gives to its compilers.
//
// A compiler reads files where its options or the source say so, and its log shows lines of them. A client sends
// sources and no files; so options must be of known kinds, and sources include nothing but the compiler's own headers.
// The search covers everything, even comments and texts: a search that knew comments could be led to take a directive
// for one.
package source

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// ErrRefused is a program that a server does not give to its compiler.
var ErrRefused = errors.New("this server does not build such a program (holdfast gpud --trust-sources does)")

// goodOptions are build options of OpenCL and NVRTC that name no files.
var goodOptions = regexp.MustCompile(`^(` + strings.Join([]string{
	`-D\w+(\(\w*\))?(=.*)?`, `-U\w+`, `--(un)?define-macro=\w+(=.*)?`,
	`-create-library`, `-enable-link-options`,
	`-cl-[a-z0-9-]+(=[\w.+:-]*)?`, `-w`, `-W(no-)?[a-z0-9-]*`, `-g`, `-O[0-3]`, `-G`, `-lineinfo`,
	`--?(std|fmad|ftz|prec-div|prec-sqrt|maxrregcount|gpu-architecture|arch|split-compile|dopt)=[\w+.-]*`,
	`--?(use_fast_math|extra-device-vectorization|restrict|device-debug|generate-line-info|disable-warnings|` +
		`default-device|device-int128|builtin-move-forward=\w+|no-source-include|device-as-default-execution-space|` +
		`display-error-number|no-display-error-number)`,
}, "|") + `)$`)

// twoWords are options whose value may be the next word.
var twoWords = map[string]bool{"-D": true, "-U": true}

var (
	macroName = regexp.MustCompile(`^\w+(\(\w*\))?(=.*)?$`)
	trigraphs = strings.NewReplacer("??=", "#", "??/", "\\", "%:", "#")
	spliced   = regexp.MustCompile(`\\[ \t\v\f\r]*\n`)
	// between the sign and the word of a directive: blanks and comments
	including = regexp.MustCompile(`(?s)#(?:[ \t\v\f\r]|/\*.*?\*/)*(include_next|include|import|embed)\b`)
	pragmas   = regexp.MustCompile(
		`(?s)(?:#(?:[ \t\v\f\r]|/\*.*?\*/)*pragma\b|` +
			`\b_Pragma(?:[ \t\v\f\r\n]|/\*.*?\*/)*\((?:[ \t\v\f\r\n]|/\*.*?\*/)*` +
			`(?:L|u8|u|U)?R?"(?:[^\s"()]{0,16}\()?)`)
	anyPragma = regexp.MustCompile(`\b(_Pragma|__pragma)\b`)
	probing   = regexp.MustCompile(`__has_(include|include_next|embed)\b`)
	reading   = regexp.MustCompile(`\.(incbin|include)\b`)
	assembly  = regexp.MustCompile(`\b(asm|__asm|__asm__)\b`)
	// a header of the compiler: below its own directories
	header = regexp.MustCompile(`^(?:[ \t]|/\*[^*]*\*/)*<([A-Za-z0-9_][\w.+-]*(?:/[A-Za-z0-9_][\w.+-]*)*)>`)
	// the subjects that pragmas may have
	goodPragma = regexp.MustCompile(
		`^[ \t]*(OPENCL|STDC|unroll|nounroll|once|pack|omp simd|clang (loop|fp|unroll|diagnostic)|` +
			`GCC (unroll|ivdep|diagnostic)|nv_\w+|nv_diag\w*|diag_\w+)\b`)
)

// Check refuses sources that would let a compiler read files of the server: the error matches ErrRefused and is a
// *driver.BuildError. cpu says that the device is a CPU, whose compiler has an assembler that reads files. Where
// assembler could be hidden, Check makes p one in which that is an error.
func Check(p *driver.ProgramDesc, cpu bool) error {
	err := checkOptions(p.Options)
	for _, u := range driver.SplitUnits(p.OpenCL) {
		if err == nil {
			err = checkOptions(u.Options)
		}
	}
	for _, text := range []string{p.Options, p.OpenCL, p.CUDA} {
		if err == nil {
			err = checkText(text, cpu)
		}
	}
	if err == nil {
		err = checkJoined(p, cpu)
	}
	if err != nil {
		return &driver.BuildError{Program: p.Name, Options: p.Options, Err: fmt.Errorf("%w: %w", err, ErrRefused)}
	}
	return nil
}

func checkOptions(options string) error {
	words := strings.Fields(options)
	for i := 0; i < len(words); i++ {
		if twoWords[words[i]] {
			if i++; i == len(words) || !macroName.MatchString(words[i]) {
				return fmt.Errorf("option %s without a name", words[i-1])
			}
			continue
		}
		if !goodOptions.MatchString(words[i]) {
			return fmt.Errorf("option %q", words[i])
		}
	}
	return nil
}

func checkText(text string, cpu bool) error {
	text = spliced.ReplaceAllString(trigraphs.Replace(strings.ReplaceAll(text, "\r\n", "\n")), "")
	if strings.ContainsRune(text, 0) {
		return errors.New("the source has a zero byte")
	}
	for _, m := range including.FindAllStringSubmatchIndex(text, -1) {
		if word := text[m[2]:m[3]]; word != "include" || !header.MatchString(text[m[1]:]) {
			return fmt.Errorf("#%s %s: only the compiler's <headers> are available, no files", word, rest(text[m[1]:]))
		}
	}
	operators := 0
	for _, m := range pragmas.FindAllStringIndex(text, -1) {
		if !goodPragma.MatchString(text[m[1]:]) {
			return fmt.Errorf("#pragma %s", rest(text[m[1]:]))
		}
		if text[m[0]] != '#' {
			operators++
		}
	}
	if len(anyPragma.FindAllString(text, -1)) > operators {
		return errors.New("_Pragma with an argument other than a string")
	}
	for _, never := range []*regexp.Regexp{probing, reading} {
		if word := never.FindString(text); word != "" {
			return fmt.Errorf("%q", word)
		}
	}
	if word := assembly.FindString(text); cpu && word != "" {
		return fmt.Errorf("%q on a CPU device, because its assembler can read files", word)
	}
	return nil
}

// rest returns the rest of a line, for an error.
func rest(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(line[:min(len(line), 200)])
}

var (
	joining    = regexp.MustCompile(`##|#(?:[ \t\v\f\r]|/\*.*?\*/)*include\b`) // a header may have macros that join
	headerLine = regexp.MustCompile(`#[ \t]*include[ \t]*<[\w./+-]*>`)
	aWord      = regexp.MustCompile(`\w+`)
)

// noAssembly makes an error of inline assembler. The words can be undefined by no source
// that checkText takes.
const noAssembly = `#define __asm__ _Static_assert(0, "inline assembler (holdfast gpud --trust-sources)");
#define __asm __asm__
#define asm __asm__
#line 1
`

// checkJoined is for words that a preprocessor makes of others by ##, which no search finds.
func checkJoined(p *driver.ProgramDesc, cpu bool) error {
	all := spliced.ReplaceAllString(trigraphs.Replace(p.Options+"\n"+p.OpenCL+"\n"+p.CUDA), "")
	if !joining.MatchString(all) {
		return nil
	}
	words := map[string]bool{}
	for _, w := range aWord.FindAllString(headerLine.ReplaceAllString(all, ""), -1) {
		words[w] = true
	}
	for _, w := range []string{"_Pragma", "__has_include", "__has_include_next", "__has_embed"} {
		if joins(words, w) {
			return fmt.Errorf("%q can be made of words of the program and its options by ##", w)
		}
	}
	if cpu && p.OpenCL != "" {
		p.OpenCL = noAssembly + p.OpenCL
	}
	return nil
}

// joins reports whether whole is several of words, one behind the other.
func joins(words map[string]bool, whole string) bool {
	to := make([]bool, len(whole)+1)
	to[0] = true
	for end := 1; end <= len(whole); end++ {
		for begin := range end {
			if to[begin] && end-begin < len(whole) && words[whole[begin:end]] {
				to[end] = true
			}
		}
	}
	return to[len(whole)]
}
