package events

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLog opens a log of rank 3 in a directory of the test.
func newLog(t *testing.T, change func(*Options)) (*Log, Options) {
	t.Helper()
	opt := Options{Dir: filepath.Join(t.TempDir(), DirName), Rank: 3, Begun: time.Now(),
		Header: Header{Job: "sun", Run: 2, Size: 4, Node: "n1", PID: 77, AliveNS: 5e9,
			Levels: []string{"local", "global"}}}
	if change != nil {
		change(&opt)
	}
	l, err := Create(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return l, opt
}

func readOne(t *testing.T, opt Options) RankLog {
	t.Helper()
	logs, problems, err := ReadDir(vfs.With(t.Context(), opt.fs), opt.Dir, 0)
	if err != nil || len(problems) > 0 || len(logs) != 1 {
		t.Fatalf("got %d logs, problems %v, %v, want one log", len(logs), problems, err)
	}
	return logs[0]
}

func TestRoundTrip(t *testing.T) {
	l, opt := newLog(t, nil)
	end := l.Span(Event{Name: Write, Epoch: 7, Level: "local"})
	end(Event{Bytes: 100, Stored: 60}, nil)
	peer := 1
	l.Emit(Event{Name: Failure, What: "lost", Text: strings.Repeat("ü", 1000), Peer: &peer})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.Emit(Event{Name: Alive}) // after Close: nothing happens
	got := readOne(t, opt)
	if got.Header.Run != 2 || got.Header.Node != "n1" || got.Header.Version != Version || got.Rank != 3 || got.Torn ||
		got.Truncated || got.Bad != 0 {
		t.Errorf("header: got %+v", got)
	}
	var names []string
	for _, e := range got.Events {
		names = append(names, fmt.Sprint(e.Name, " ", e.Begin))
	}
	if want := "[open true write true write false error false]"; fmt.Sprint(names) != want {
		t.Errorf("got %v, want %v", names, want)
	}
	w := got.Events[2]
	if w.Epoch != 7 || w.Level != "local" || w.Bytes != 100 || w.Stored != 60 || w.Dur <= 0 || w.Mono < w.Dur ||
		w.Wall < opt.Begun.UnixNano() {
		t.Errorf("span: got %+v", w)
	}
	if e := got.Events[3]; *e.Peer != 1 || len(e.Text) != maxText || strings.ContainsRune(e.Text, '\uFFFD') {
		t.Errorf("a long text: got %d bytes of it", len(e.Text))
	}
}

// TestAliveInPlace: a sign of life right behind another takes its place.
func TestAliveInPlace(t *testing.T) {
	l, opt := newLog(t, nil)
	for i := range uint64(50) {
		l.Emit(Event{Name: Alive, Points: 1000 * i * i * i})
		if i == 24 {
			l.Emit(Event{Name: Arm, Epoch: 1})
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got := readOne(t, opt)
	var names []string
	for _, e := range got.Events {
		names = append(names, fmt.Sprint(e.Name, e.Points))
	}
	if want := fmt.Sprint("[open0 alive", 1000*24*24*24, " arm0 alive", 1000*49*49*49, "]"); fmt.Sprint(names) != want {
		t.Errorf("got %v, want %v", names, want)
	}
}

// TestBounded: a log that is too long drops its oldest part, not its newest.
func TestBounded(t *testing.T) {
	const most = 64 << 10
	l, opt := newLog(t, func(o *Options) { o.MaxBytes = most })
	const n = 3000
	for i := range n {
		l.Emit(Event{Name: Arm, Epoch: uint64(i + 1)})
		if i%500 == 0 {
			l.Flush(t.Context())
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got := readOne(t, opt)
	if last := got.Events[len(got.Events)-1]; !got.Truncated || last.Epoch != n || got.Header.Part == 0 ||
		len(got.Paths) != 2 {
		t.Errorf("got parts %v, gone %v, last epoch %d, want two parts that end with %d", got.Paths, got.Truncated,
			last.Epoch, n)
	}
	var size int64
	for _, p := range got.Paths {
		st, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		size += st.Size()
	}
	if size > most+2*maxLine {
		t.Errorf("got %d bytes, want %d at most", size, most)
	}
}

// TestSlowDisk: what does not fit into the queue is counted.
func TestSlowDisk(t *testing.T) {
	gate := make(chan struct{})
	l, opt := newLog(t, func(o *Options) { o.fs = slowFS{vfs.OS{}, gate} })
	const n = 3 * queueLen
	for range n {
		l.Emit(Event{Name: Arm})
	}
	close(gate)
	l.Flush(t.Context())
	l.Emit(Event{Name: Close})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got := readOne(t, opt)
	if have := uint64(len(got.Events) - 2); have+got.Lost != n || got.Lost == 0 {
		t.Errorf("%d events there and %d lost, want %d together and some lost", have, got.Lost, n)
	}
}

type slowFS struct {
	vfs.FS
	gate chan struct{}
}

type slowFile struct {
	vfs.File
	gate chan struct{}
	n    *int
}

func (s slowFS) Create(name string, direct bool) (vfs.File, error) {
	f, err := s.FS.Create(name, direct)
	return slowFile{f, s.gate, new(int)}, err
}

func (f slowFile) WriteAt(p []byte, off int64) (int, error) {
	if *f.n++; *f.n > 1 { // the header passes
		<-f.gate
	}
	return f.File.WriteAt(p, off)
}

// TestFullDisk: the log ends with an error that names it, and Emit goes on.
func TestFullDisk(t *testing.T) {
	full := errors.New("no space left")
	l, opt := newLog(t, func(o *Options) { o.fs = fullFS{vfs.OS{}, full} })
	l.Emit(Event{Name: Arm})
	l.Flush(t.Context())
	l.Emit(Event{Name: Arm})
	if err := l.Close(); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	opt.fs = nil
	if got := readOne(t, opt); len(got.Events) != 1 {
		t.Errorf("got %d events, want the header", len(got.Events))
	}
}

type fullFS struct {
	vfs.FS
	err error
}

type fullFile struct {
	vfs.File
	err error
	n   *int
}

func (s fullFS) Create(name string, direct bool) (vfs.File, error) {
	f, err := s.FS.Create(name, direct)
	return fullFile{f, s.err, new(int)}, err
}

func (f fullFile) WriteAt(p []byte, off int64) (int, error) {
	if *f.n++; *f.n > 1 {
		return 0, f.err
	}
	return f.File.WriteAt(p, off)
}

// decodeOne decodes a file of one rank.
func decodeOne(r io.Reader) (RankLog, error) {
	logs, err := decode(r)
	if len(logs) == 0 {
		return RankLog{}, err
	}
	return *logs[0], err
}

// TestDamaged cuts a log at every byte and turns bytes of it: what is whole is
// read, and nothing else.
func TestDamaged(t *testing.T) {
	l, opt := newLog(t, nil)
	for i := range 5 {
		l.Emit(Event{Name: Arm, Epoch: uint64(i + 1)})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(readOne(t, opt).Paths[0])
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		got, err := decodeOne(bytes.NewReader(b[:n]))
		lines := bytes.Count(b[:n], []byte("\n"))
		switch torn := n > 0 && b[n-1] != '\n'; {
		case lines == 0:
			if !errors.Is(err, ErrNoHeader) {
				t.Fatalf("%d bytes: got %v, want ErrNoHeader", n, err)
			}
		case err != nil || len(got.Events) != lines || got.Torn != torn:
			t.Fatalf("%d bytes: got %d events, torn %v, %v, want %d, %v", n, len(got.Events), got.Torn, err, lines,
				torn)
		}
	}
	long := append(bytes.Clone(b), bytes.Repeat([]byte("x"), 5*maxLine)...)
	long = append(long,
		"\n{\"ev\":\"arm\",\"t\":1,\"m\":1,\"rank\":3,\"epoch\":99}\nnonsense\n"+
			"{\"ev\":\"later\",\"t\":1,\"m\":1,\"rank\":3}\n"...)
	got, err := decodeOne(bytes.NewReader(long))
	if err != nil || got.Bad != 2 || got.Events[len(got.Events)-1].Epoch != 99 {
		t.Errorf("a line that is too long and one of nonsense: got %d bad, last %+v, %v", got.Bad,
			got.Events[len(got.Events)-1], err)
	}
}

// TestInMemory: all access to files goes through the interface.
func TestInMemory(t *testing.T) {
	mem := crashfs.New()
	l, opt := newLog(t, func(o *Options) { o.fs, o.Dir = mem, "/events" })
	l.Emit(Event{Name: Arm})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readOne(t, opt); len(got.Events) != 2 {
		t.Errorf("got %d events, want 2", len(got.Events))
	}
}

func TestNoLogs(t *testing.T) {
	var no *NoLogError
	if _, _, err := ReadDir(t.Context(), t.TempDir(), 0); !errors.As(err, &no) {
		t.Errorf("got %v, want a *NoLogError", err)
	}
}

// TestPrune: a run a hundred runs back goes, with its directory.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	for _, run := range []int{1, 2, 101} {
		for rank := range 2 {
			l, err := Create(t.Context(), Options{Dir: dir, Rank: rank, Begun: time.Now(),
				Header: Header{Run: run, Size: 2}})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for rank := range 2 {
		if err := Prune(t.Context(), dir, 101, rank); err != nil {
			t.Fatal(err)
		}
	}
	if runs, err := Runs(t.Context(), dir); err != nil || fmt.Sprint(runs) != "[2 101]" {
		t.Errorf("got runs %v, %v, want [2 101]", runs, err)
	}
	logs, _, err := ReadDir(t.Context(), dir, 1)
	if err != nil || len(logs) != 2 || logs[0].Header.Run != 101 {
		t.Errorf("the newest run: got %d logs, %v, want those of run 101", len(logs), err)
	}
}

// TestFormatExample decodes the log that docs/FORMAT.md shows.
func TestFormatExample(t *testing.T) {
	doc, err := os.ReadFile("../../docs/FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```jsonevents\n(.*?)```").FindSubmatch(doc)
	if block == nil {
		t.Fatal("no example in docs/FORMAT.md")
	}
	got, err := decodeOne(bytes.NewReader(block[1]))
	if err != nil || got.Bad != 0 || got.Header.Run != 2 || len(got.Events) != bytes.Count(block[1], []byte("\n")) {
		t.Errorf("got %+v, %v", got, err)
	}
	for name := range known {
		if !bytes.Contains(doc, []byte("\n"+name+"  ")) {
			t.Errorf("docs/FORMAT.md does not list the event %q", name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(
		`{"ev":"open","t":1,"m":0,"rank":0,"begin":true,` +
			`"open":{"v":1,"job":"j","run":1,"size":1,"node":"n","pid":1,"part":0,"alive_ns":1,"levels":["local"]}}` +
			"\n" +
			`{"ev":"write","t":9,"m":8,"rank":0,"epoch":1,"dur":7,"level":"local","bytes":5}` + "\n" + `{"ev":"al`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeOne(bytes.NewReader(b))
		if err != nil {
			return
		}
		if len(got.Events) == 0 || got.Events[0].Header == nil {
			t.Fatal("no error and no header")
		}
		for _, e := range got.Events {
			if e.Rank != got.Rank || e.Dur < 0 || e.Wall < 0 || e.Wall-e.Dur > e.Wall || !known[e.Name] {
				t.Fatalf("an event out of bounds: %+v", e)
			}
			if _, err := e.line(); err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
		}
	})
}

func BenchmarkEmit(b *testing.B) {
	l, err := Create(b.Context(), Options{Dir: b.TempDir(), Begun: time.Now(), Header: Header{Run: 1, Size: 1}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		l.Emit(Event{Name: Arm, Epoch: 1})
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
